"""One figure of a run between its bounds, by the name of its metric."""

from __future__ import annotations

import math

import numpy as np

from modelops_loadtests.definitions import timing_of
from modelops_loadtests.gates.averages import mean_interval, rate_interval, share_interval
from modelops_loadtests.gates.judging import Measured
from modelops_loadtests.gates.percentiles import Bounded, percentile_interval


def figure(metric: str, measured: Measured, alpha: float) -> tuple[Bounded, int] | None:
    """Return a metric between bounds of confidence 1 − ``alpha`` each, and its samples.

    Timings are in milliseconds. None where the run did not measure it; a mean with failed requests
    is of those that succeeded. ``max`` has no interval and is none of these metrics.
    """
    timing = timing_of(metric)
    if timing is not None:
        values = measured.timings.get(timing[0])
        if values is None or not np.isfinite(values).any() or timing[1] == "max":
            return None
        if timing[1] == "mean":
            known = values[np.isfinite(values)] * 1000
            return mean_interval(known, alpha), len(known)
        return percentile_interval(values * 1000, float(timing[1][1:]), alpha), len(values)
    shares = {"error_rate": measured.failed_at, "goodput_share": measured.met_at}
    if metric in shares:
        hits = shares[metric]
        if hits is None or not len(hits):
            return None
        return share_interval(hits.astype(np.float64), alpha), len(hits)
    blocks = measured.per_second.get(metric)
    if blocks is None or not len(blocks) or not measured.total:
        return None
    return rate_interval(blocks, alpha), measured.total


def ends(found: Bounded) -> dict[str, float | None]:
    """Return value, low and high as JSON has them: what is infinite is None."""
    named = {"value": found.value, "low": found.low, "high": found.high}
    return {name: v if math.isfinite(v) else None for name, v in named.items()}
