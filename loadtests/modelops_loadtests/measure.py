"""From raw samples to figures: what is inside the window, and what each figure means.

The window begins when the warm-up is over and lasts as asked. Latencies, the error rate and bytes
are those of requests that were *due* inside the window, however late they ended, so that a slow
request at the end is not lost; throughputs count requests that *ended* well inside the window.
Latency percentiles are of requests that succeeded. A request that was cut, still in flight when
the bound on waiting for it had passed, has no latency and is counted apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelops_loadtests.gates import Measured, finite
from modelops_loadtests.percentiles import percentile
from modelops_loadtests.samples import Floats, SampleTable

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
    """The samples of the window, split by what became of them, and those outside of it."""

    window: Window
    inside: SampleTable
    completed: SampleTable
    excluded: int

    @property
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
    inside = (due >= window.start) & (due < window.end)
    completed = (end >= window.start) & (end < window.end) & samples.having("ok")
    return Measurement(
        window, samples.where(inside), samples.where(completed), int((due < window.start).sum())
    )


def timings(measurement: Measurement) -> dict[str, Floats]:
    """Return the seconds of each successful request, by the name of the timing."""
    ok = measurement.ok
    return {"e2e": ok.e2e, "first_byte": finite(ok["first_byte"] - ok.due)}


def rates(measurement: Measurement) -> dict[str, float]:
    """Return what there is per second, and the error rate; a rate without data is left out."""
    found: dict[str, float] = {}
    if measurement.total:
        # A cut request did not succeed either: left out, a stalled server would look well.
        missed = measurement.failed + measurement.cut
        found["error_rate"] = missed / (measurement.total + measurement.cut)
    seconds = measurement.window.seconds
    if seconds > 0 and measurement.total:
        done = measurement.completed
        found["qps"] = len(done) / seconds
        for metric, column in (("items_per_s", "items"), ("tokens_per_s", "tokens")):
            counted = finite(done[column])
            if counted.size:
                found[metric] = float(counted.sum()) / seconds
    return found


def measured(measurement: Measurement) -> Measured:
    """Return what gates are judged on."""
    return Measured(
        timings=timings(measurement),
        rates=rates(measurement),
        total=measurement.total + measurement.cut,
        failed=measurement.failed + measurement.cut,
    )


def summary(measurement: Measurement) -> dict[str, Any]:
    """Return the figures of the report; a latency in milliseconds, None where there is none."""
    found = rates(measurement)
    inside = measurement.inside
    return {
        "requests": len(inside),
        "ok": len(measurement.ok),
        "failed": measurement.failed,
        "cut": measurement.cut,
        "error_rate": found.get("error_rate"),
        "qps": found.get("qps"),
        "items_per_s": found.get("items_per_s"),
        "tokens_per_s": found.get("tokens_per_s"),
        "bytes_sent": int(inside["bytes_sent"].sum()),
        "bytes_received": int(inside["bytes_received"].sum()),
        **{f"{name}_ms": spread(values) for name, values in timings(measurement).items()},
    }


def spread(values: Floats) -> dict[str, float | None]:
    """Return mean, percentiles and maximum of seconds, in milliseconds; None without a sample."""
    found: dict[str, float | None] = {"mean": None, "max": None}
    if len(values):
        found = {"mean": float(values.mean()) * 1000, "max": float(values.max()) * 1000}
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
        first = inside.error.index(kind)
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
    """Return successes per second for each whole ``step`` seconds of the window."""
    start, seconds = measurement.window.start, measurement.window.seconds
    bins = int(seconds / step + 1e-9)
    if bins < 1:
        return []
    edges = start + np.arange(bins + 1) * step
    counts, _ = np.histogram(measurement.completed["end"], bins=edges)
    return [
        {"t": float(edges[i] + step / 2), "qps": float(count) / step}
        for i, count in enumerate(counts)
    ]
