"""What the load generator itself costs and how late it runs: its CPU share and its loop's lag."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_TICK = 0.005
_SERIES = 0.5


@dataclass
class HealthMonitor:
    """Sleeps for 5 ms again and again and records how much later than asked it woke.

    Every greenlet of the generator, and so every time stamp, is late by as much: because another
    greenlet computed, or because the operating system ran something else.
    """

    clock_start: float
    lags: list[tuple[float, float]] = field(default_factory=list)
    cpu: list[tuple[float, float]] = field(default_factory=list)

    def run(self) -> None:
        """Watch until killed; meant for a greenlet of its own."""
        from gevent import sleep

        wall, used = time.perf_counter(), time.process_time()
        while True:
            before = time.perf_counter()
            sleep(_TICK)
            now = time.perf_counter()
            self.lags.append((now - self.clock_start, now - before - _TICK))
            if now - wall >= _SERIES:
                spent = time.process_time()
                self.cpu.append((now - self.clock_start, (spent - used) / (now - wall)))
                wall, used = now, spent

    def summary(self, start: float, end: float) -> dict[str, Any]:
        """Return the health in the window from ``start`` to ``end``, seconds of the run.

        Lags are in milliseconds, ``cpu_share`` in cores (1.0 is one core, all that a generator
        of one process has).
        """
        lags = np.array([max(0.0, lag) for t, lag in self.lags if start <= t <= end]) * 1000
        cpu = [share for t, share in self.cpu if start <= t <= end + _SERIES]
        return {
            "ticks": len(lags),
            "cpu_share": round(float(np.mean(cpu)), 4) if cpu else None,
            "lag_p50_ms": _at(lags, 50),
            "lag_p99_ms": _at(lags, 99),
            "lag_max_ms": _at(lags, 100),
            "lag_mean_ms": round(float(lags.mean()), 3) if len(lags) else None,
            "series": self._series(end),
        }

    def _series(self, end: float) -> list[dict[str, float]]:
        """Return CPU share and worst lag for each half second, for the report's plot."""
        rows = []
        position = 0
        for at, share in self.cpu:
            if at > end:
                break
            worst = 0.0
            while position < len(self.lags) and self.lags[position][0] <= at:
                worst = max(worst, self.lags[position][1])
                position += 1
            rows.append(
                {"t": round(at, 3), "cpu": round(share, 4), "lag_ms": round(worst * 1000, 3)}
            )
        return rows


def _at(values: Any, percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 3) if len(values) else None
