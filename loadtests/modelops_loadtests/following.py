"""What several sending processes tell while they run, put together for whoever watches."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from modelops_loadtests.load.stage import Stage

_SECONDS = 5.0


class Following:
    """Sums the processes' progress up; latencies and rates are of the last five seconds."""

    def __init__(self) -> None:
        self._last: dict[int, dict[str, Any]] = {}
        self._recent: deque[tuple[float, dict[str, Any]]] = deque()

    def hear(self, process: int, told: dict[str, Any]) -> None:
        """Take one process's progress."""
        before = self._last.get(process, {"ok": 0})
        self._last[process] = told
        self._recent.append((told["t"], {**told, "answered": told["ok"] - before["ok"]}))
        while self._recent and self._recent[0][0] < told["t"] - _SECONDS:
            self._recent.popleft()

    def figures(self, stage: Stage, until: float) -> dict[str, Any]:
        """Return what is known now: see ``report.Live``."""
        last = list(self._last.values())
        found: dict[str, Any] = {
            "t": max((told["t"] for told in last), default=0.0),
            "until_s": until,
            "phase": last[-1]["phase"] if last else "starting",
            **{k: sum(told[k] for told in last) for k in ("ok", "error", "cut", "in_flight")},
        }
        if stage.axis == "rate":
            found["asked"] = stage.load
        if stage.number or stage.held:
            found["stage"] = f"{stage.axis} {stage.load:g}"
        if self._recent:
            span = max(0.5, found["t"] - self._recent[0][0])
            told = [told for _, told in self._recent]
            found["delivered"] = sum(t["answered"] for t in told) / span
            found["output_tokens_per_s"] = sum(t["tokens"] for t in told) / span or None
            found["lag_p99_ms"] = max(t["lag_ms"] for t in told)
            for timing in ("ttft", "e2e"):
                values = [v for t in told for v in t[f"{timing}_ms"]]
                if values:
                    low, high = np.percentile(values, [50, 95])
                    found[f"{timing}_p50_ms"], found[f"{timing}_p95_ms"] = float(low), float(high)
        return found

    def phrase(self, stage: Stage, until: float) -> str:
        """Return the same in a line."""
        now = self.figures(stage, until)
        load = f" at {stage.axis} {stage.load:g}" if stage.axis != "trace" else ""
        return (
            f"{now['phase']}{load}, {now['t']:.1f} of {until:g} s: {now['ok']} ok, "
            f"{now['error']} failed, {now['in_flight']} in flight"
        )
