"""From samples to the series in time that gates are judged on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from modelops_loadtests.definitions import TIMINGS
from modelops_loadtests.samples import Floats, Mask, SampleTable

BLOCKS = 400
"""Equal parts of the measured time, for throughputs."""


def timing_series(samples: SampleTable) -> dict[str, Floats]:
    """Return each timing in seconds, of samples in the order in which they were due.

    A request that failed or was cut is inf; of gaps between tokens it stands for as many as a
    request has on average. One that cannot have the timing is left out, and so is a failed one of
    a scenario whose requests never have it.
    """
    failed = ~samples.having("ok")
    found = {}
    for name, timing in TIMINGS.items():
        values = timing.values(samples)
        owner = np.arange(len(samples), dtype=np.intp)
        if timing.of_request is not None:
            owner = samples.chunks.stream[samples.chunks.gap_ends]
        known = ~np.isnan(values) & ~failed[owner]
        values, owner = values[known], owner[known]
        lost = np.flatnonzero(failed & _could_have(samples, owner))
        each = max(1, round(len(values) / max(len(np.unique(owner)), 1)))
        places = np.repeat(np.searchsorted(owner, lost), each)
        found[name] = np.insert(values, places, np.inf)
    return found


def _could_have(samples: SampleTable, owner: npt.NDArray[np.intp]) -> Mask:
    """Return which samples are of a scenario that has the timing, or of which nothing is known."""
    scenarios = np.array([name or "" for name in samples.scenario], dtype=np.str_)
    having = np.unique(scenarios[owner])
    succeeded = np.unique(scenarios[samples.having("ok")])
    return np.isin(scenarios, having) | ~np.isin(scenarios, succeeded)


def blocks_per_second(ends: Floats, weights: Floats, start: float, seconds: float) -> Floats:
    """Return what ended in each block of the time from ``start``, per second."""
    edges = start + np.linspace(0, seconds, BLOCKS + 1)
    counted, _ = np.histogram(ends, bins=edges, weights=weights)
    return np.asarray(counted * (BLOCKS / seconds), dtype=np.float64)
