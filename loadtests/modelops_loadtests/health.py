"""What the load generator itself costs and how late it runs: CPU, waiting for a core, lag."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

_TICK = 0.005
_SERIES = 0.5
_WAITED = Path("/proc/thread-self/schedstat")


@dataclass(frozen=True)
class _Used:
    """Up to a moment of the run: seconds of CPU, and seconds spent ready without a core."""

    at: float
    cpu: float
    waited: float | None


@dataclass
class HealthMonitor:
    """Sleeps for 5 ms again and again and records how much later than asked it woke.

    Every greenlet of the generator, and so everything that it sends, is late by as much: because
    another greenlet computed, or because the operating system ran something else.
    """

    clock_start: float
    lags: list[tuple[float, float]] = field(default_factory=list)
    used: list[_Used] = field(default_factory=list)

    def run(self) -> None:
        """Watch until killed; meant for a greenlet of its own."""
        from gevent import sleep

        self._look(time.perf_counter())
        while True:
            before = time.perf_counter()
            sleep(_TICK)
            now = time.perf_counter()
            self.lags.append((now - self.clock_start, now - before - _TICK))
            if now - self.clock_start - self.used[-1].at >= _SERIES:
                self._look(now)

    def _look(self, now: float) -> None:
        self.used.append(_Used(now - self.clock_start, time.process_time(), _waited()))

    def summary(self, start: float, end: float) -> dict[str, Any]:
        """Return the health in the window from ``start`` to ``end``, seconds of the run.

        Lags are in milliseconds, ``cpu_share`` in cores (1.0 is one core, all that a generator
        of one process has), ``cpu_wait_share`` in shares of the time (None where the system does
        not tell).
        """
        lags = np.array([max(0.0, lag) for t, lag in self.lags if start <= t <= end]) * 1000
        cpu, waited = self._shares(start, end)
        return {
            "ticks": len(lags),
            "cpu_share": cpu,
            "cpu_wait_share": waited,
            "lag_p50_ms": _at(lags, 50),
            "lag_p99_ms": _at(lags, 99),
            "lag_max_ms": _at(lags, 100),
            "lag_mean_ms": round(float(lags.mean()), 3) if len(lags) else None,
            "series": self._series(end),
        }

    def _shares(self, start: float, end: float) -> tuple[float | None, float | None]:
        inside = [u for u in self.used if start - _SERIES <= u.at <= end + _SERIES]
        if len(inside) < 2:
            return None, None
        first, last = inside[0], inside[-1]
        seconds = last.at - first.at
        waited = None
        if first.waited is not None and last.waited is not None:
            waited = round((last.waited - first.waited) / seconds, 4)
        return round((last.cpu - first.cpu) / seconds, 4), waited

    def _series(self, end: float) -> list[dict[str, float]]:
        """Return CPU share and worst lag for each half second, for the report's plot."""
        rows = []
        position = 0
        for before, now in pairwise(self.used):
            if now.at > end:
                break
            worst = 0.0
            while position < len(self.lags) and self.lags[position][0] <= now.at:
                worst = max(worst, self.lags[position][1])
                position += 1
            share = (now.cpu - before.cpu) / (now.at - before.at)
            rows.append(
                {"t": round(now.at, 3), "cpu": round(share, 4), "lag_ms": round(worst * 1000, 3)}
            )
        return rows


def _waited() -> float | None:
    """Return the seconds for which this thread was ready to run and had no core (Linux)."""
    try:
        return int(_WAITED.read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _at(values: Any, percent: float) -> float | None:
    return round(float(np.percentile(values, percent)), 3) if len(values) else None
