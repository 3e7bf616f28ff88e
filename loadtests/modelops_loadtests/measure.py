"""From raw samples to figures: what is inside the window, and what there is per second.

The window begins when the warm-up is over and lasts as asked. Latencies, the error rate and bytes
are those of requests that were *due* inside the window, however late they ended, so that a slow
request at the end is not lost; throughputs count requests that *ended* well inside the window. Of
a closed loop, a request of the warm-up for which its user waited all through the window belongs to
it as well: that user sends no other, and what it met would be told by nothing.
Latency percentiles are of requests that succeeded. A request that was cut, still in flight when
the bound on waiting for it had passed, has no latency and is counted apart. What each latency
means is in ``definitions``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from modelops_loadtests import definitions
from modelops_loadtests.gates import Measured
from modelops_loadtests.gates.percentiles import percentile
from modelops_loadtests.gates.series import blocks_per_second, timing_series
from modelops_loadtests.samples import Floats, SampleTable

NO_BOUNDS: Mapping[str, float] = {}
_COUNTED = {
    "items_per_s": "items",
    "output_tokens_per_s": "output_tokens",
    "input_tokens_per_s": "input_tokens",
}
PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True)
class Window:
    """The measured part of a run, in seconds from its start; ``end`` is where it was cut short."""

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return max(0.0, self.end - self.start)


@dataclass(frozen=True)
class Measurement:
    """The samples of the window, and those outside of it.

    ``inside`` are those due in it, or waited for all through it, in the order in which they were
    due; ``completed`` those that ended in it and succeeded.
    """

    window: Window
    inside: SampleTable
    completed: SampleTable
    excluded: int

    @cached_property
    def ok(self) -> SampleTable:
        """Requests due inside the window that succeeded."""
        return self.inside.where(self.inside.having("ok"))

    @property
    def failed(self) -> int:
        """Requests due inside the window that failed."""
        return int(self.inside.having("error").sum())

    @property
    def cut(self) -> int:
        """Requests due inside the window that were still in flight when waiting ended."""
        return int(self.inside.having("cut").sum())

    @property
    def total(self) -> int:
        """Requests due inside the window that have an outcome."""
        return len(self.inside) - self.cut

    @property
    def answered(self) -> bool:
        """Whether the server gave any HTTP status at all."""
        return bool(finite(self.inside["status"]).size)


def measure(samples: SampleTable, window: Window) -> Measurement:
    """Select what was measured."""
    due, end = samples.due, samples["end"]
    throughout = np.isnan(samples["scheduled"]) & (due < window.start) & (end >= window.end)
    in_it = (due >= window.start) & (due < window.end) | throughout & (window.seconds > 0)
    inside = np.flatnonzero(in_it)
    inside = inside[np.argsort(due[inside], kind="stable")]
    completed = (end >= window.start) & (end < window.end) & samples.having("ok")
    return Measurement(
        window,
        samples.take(inside),
        samples.where(completed),
        int(((due < window.start) & ~in_it).sum()),
    )


def timings(measurement: Measurement) -> dict[str, Floats]:
    """Return the seconds of each timing, of the requests that succeeded and have it."""
    ok = measurement.ok
    return {name: finite(timing.values(ok)) for name, timing in definitions.TIMINGS.items()}


def rates(measurement: Measurement, bounds: Mapping[str, float] = NO_BOUNDS) -> dict[str, float]:
    """Return what there is per second, and the error rate; a rate without data is left out.

    ``bounds`` are the latency objectives that goodput is of: timing → seconds
    (``definitions.latency_bounds``).
    """
    found: dict[str, float] = {}
    if measurement.total:
        # A cut request did not succeed either: left out, a stalled server would look well.
        missed = measurement.failed + measurement.cut
        found["error_rate"] = missed / (measurement.total + measurement.cut)
    seconds = measurement.window.seconds
    if seconds > 0 and measurement.total:
        done = measurement.completed
        found["qps"] = len(done) / seconds
        for metric, column in _COUNTED.items():
            counted = finite(done[column])
            if counted.size:
                found[metric] = float(counted.sum()) / seconds
        if (share := definitions.met(measurement.inside, bounds)) is not None:
            found["goodput_share"] = float(share.mean())
            good = definitions.met(done, bounds)
            found["goodput_rps"] = 0.0 if good is None else float(good.sum()) / seconds
    return found


def measured(measurement: Measurement, bounds: Mapping[str, float] = NO_BOUNDS) -> Measured:
    """Return what gates are judged on."""
    inside = measurement.inside
    met = definitions.met(inside, bounds)
    return Measured(
        timings=timing_series(inside),
        failed_at=~inside.having("ok"),
        per_second=_per_second(measurement, bounds),
        met_at=met,
    )


def _per_second(measurement: Measurement, bounds: Mapping[str, float]) -> dict[str, Floats]:
    """Return the throughputs of ``rates`` for each block of the window."""
    window, done = measurement.window, measurement.completed
    weights = {
        "qps": np.ones(len(done)),
        **{metric: done[column] for metric, column in _COUNTED.items()},
    }
    found = rates(measurement, bounds)
    if "goodput_rps" in found:
        good = definitions.met(done, bounds)
        weights["goodput_rps"] = np.zeros(len(done)) if good is None else good.astype(np.float64)
    return {
        metric: blocks_per_second(done["end"], np.nan_to_num(w), window.start, window.seconds)
        for metric, w in weights.items()
        if metric in found
    }


def summary(measurement: Measurement, bounds: Mapping[str, float] = NO_BOUNDS) -> dict[str, Any]:
    """Return the figures of the report; a latency in milliseconds, None where there is none."""
    found = rates(measurement, bounds)
    inside = measurement.inside
    return {
        "requests": len(inside),
        "ok": len(measurement.ok),
        "failed": measurement.failed,
        "cut": measurement.cut,
        "error_rate": found.get("error_rate"),
        **{metric: found.get(metric) for metric in definitions.LOWER_BOUNDED},
        "tokens_per_chunk": definitions.tokens_per_chunk(measurement.ok),
        "bytes_sent": int(inside["bytes_sent"].sum()),
        "bytes_received": int(inside["bytes_received"].sum()),
        **{f"{name}_ms": spread(values) for name, values in timings(measurement).items()},
    }


def spread(values: Floats) -> dict[str, float | None]:
    """Return mean, percentiles and maximum of seconds, in milliseconds; None without a sample."""
    found: dict[str, float | None] = {"count": len(values), "mean": None, "max": None}
    if len(values):
        found["mean"], found["max"] = float(values.mean()) * 1000, float(values.max()) * 1000
    for percent in PERCENTILES:
        value = percentile(values, percent)
        found[f"p{percent:g}"] = None if value is None else value * 1000
    return found


def errors(measurement: Measurement) -> list[dict[str, Any]]:
    """Return each kind of failure with its count, its first example and when it came first."""
    inside = measurement.inside
    counts = Counter(kind for kind in inside.error if kind)
    rows = []
    for kind, number in counts.most_common():
        first = min((i for i, k in enumerate(inside.error) if k == kind), key=inside["end"].item)
        rows.append(
            {
                "kind": kind,
                "count": number,
                "first_s": float(inside["end"][first]),
                "example": inside.detail[first],
            }
        )
    return rows


def throughput(measurement: Measurement, step: float) -> list[dict[str, float]]:
    """Return successes, and their tokens and items, a second for each ``step`` of the window."""
    start, seconds = measurement.window.start, measurement.window.seconds
    bins = int(seconds / step + 1e-9)
    if bins < 1:
        return []
    edges = start + np.arange(bins + 1) * step
    done = measurement.completed
    columns = {"qps": np.ones(len(done))}
    for metric in ("output_tokens_per_s", "items_per_s"):
        counted = done[_COUNTED[metric]]
        if finite(counted).size:
            columns[metric] = np.nan_to_num(counted)
    rates = {
        name: np.histogram(done["end"], bins=edges, weights=weights)[0] / step
        for name, weights in columns.items()
    }
    return [
        {"t": float(edges[i] + step / 2), **{name: float(row[i]) for name, row in rates.items()}}
        for i in range(bins)
    ]


def finite(values: Floats) -> Floats:
    """Return the values that were measured: those that are not NaN."""
    return values[~np.isnan(values)]
