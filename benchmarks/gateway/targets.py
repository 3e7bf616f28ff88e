"""What was promised, and what one run shows: ratios of runs of the same round."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gateway.contenders import (
    BARE_EXECUTOR,
    FASTAPI_EXECUTOR,
    HOSTED,
    INLINE,
    LITSERVE,
    MLSERVER,
)
from gateway.rounds import alone

Runs = Sequence[dict[str, Any]]

BEST_OTHER = "the best other"


@dataclass(frozen=True)
class Target:
    """``ours`` over ``theirs`` in requests a second, or microseconds of p50 more than theirs."""

    scenario: str
    connections: int
    ours: str
    theirs: str
    bound: float
    kind: Literal["ratio", "added_us"] = "ratio"

    @property
    def text(self) -> str:
        """The promise, in a line."""
        if self.kind == "added_us":
            return f"{self.ours} adds ≤ {self.bound:g} µs p50 to {self.theirs}"
        return f"{self.ours} ≥ {self.bound:g} × {self.theirs}"


TARGETS = (
    Target("mlp", 16, INLINE, FASTAPI_EXECUTOR, 2.5),
    Target("mlp", 16, INLINE, BARE_EXECUTOR, 0.9),
    Target("mlp", 16, HOSTED, MLSERVER, 4),
    Target("mlp", 16, HOSTED, LITSERVE, 5),
    Target("mlp", 1, HOSTED, INLINE, 250, "added_us"),
    *(
        Target("minilm", connections, ours, theirs, bound)
        for connections in (16, 64)
        for ours in (HOSTED, INLINE)
        for theirs, bound in ((BEST_OTHER, 1.0), (alone(ours), 0.95))
    ),
)


@dataclass(frozen=True)
class Outcome:
    """One target beside what was measured; ``low`` and ``high`` are over the rounds.

    ``by_cpu`` is the same ratio in processor time a request: what others on the machine disturb
    least.
    """

    text: str
    scenario: str
    connections: int
    measured: float | None
    low: float | None
    high: float | None
    by_cpu: float | None
    word: Literal["met", "missed", "not measured"]


def outcomes(runs: Runs) -> list[Outcome]:
    """Judge every target of the scenarios in ``runs``."""
    scenarios = {run["scenario"] for run in runs}
    return [_judged(target, runs) for target in TARGETS if target.scenario in scenarios]


def pairs(
    runs: Runs, scenario: str, connections: int, ours: str, theirs: str, key: str
) -> list[tuple[float, float]]:
    """The values of two contenders in each round in which both runs are valid."""
    here = [
        run
        for run in runs
        if (run["scenario"], run["connections"]) == (scenario, connections) and run["valid"]
    ]
    found = []
    for number in sorted({run["round"] for run in here}):
        now = [run for run in here if run["round"] == number and key in run]
        values = {run["contender"]: run[key] for run in now}
        if theirs == BEST_OTHER:
            rest = [v for name, v in values.items() if name not in _OWN]
            other = max(rest, default=None)
        else:
            other = values.get(theirs)
        if ours in values and other is not None:
            found.append((values[ours], other))
    return found


_OWN = {HOSTED, INLINE, alone(HOSTED), alone(INLINE)}


def _judged(target: Target, runs: Runs) -> Outcome:
    key = "rps" if target.kind == "ratio" else "p50_us"
    both = pairs(runs, target.scenario, target.connections, target.ours, target.theirs, key)
    place = (target.text, target.scenario, target.connections)
    if not both:
        return Outcome(*place, None, None, None, None, "not measured")
    values = [a / b if target.kind == "ratio" else a - b for a, b in both]
    middle = statistics.median(values)
    met = middle >= target.bound if target.kind == "ratio" else middle <= target.bound
    used = pairs(runs, target.scenario, target.connections, target.ours, target.theirs, "cpu_us")
    by_cpu = statistics.median(theirs / ours for ours, theirs in used) if used else None
    if target.kind == "added_us" or target.theirs == BEST_OTHER:
        by_cpu = None
    return Outcome(*place, middle, min(values), max(values), by_cpu, "met" if met else "missed")
