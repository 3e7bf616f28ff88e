"""A sweep: which load comes next, where throughput stops following it, what meets the SLOs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from modelops.errors import UsageError

MAX_STAGES = 64
_MISSING_SHARE = 0.05
_MISSING = 3 + 1e-6
_GAIN = 1.05
_NEAR = 1.1
_WRITTEN = re.compile(r"\s*(rate|users)\s*=\s*(.+)\Z")
_HINT = 'such as "rate=1..64", "users=1..64" or "rate=1,2,5"'


class Sweep(BaseModel):
    """Loads to try in ascending order; ``refine`` looks closer around the knee afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    axis: Literal["rate", "users"]
    loads: tuple[float, ...]
    refine: bool

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        return parse(value) if isinstance(value, str) else value

    def __str__(self) -> str:
        if self.refine:
            return f"{self.axis}={self.loads[0]:g}..{self.loads[-1]:g}"
        return f"{self.axis}=" + ",".join(f"{load:g}" for load in self.loads)


def parse(text: str) -> dict[str, Any]:
    """Read ``rate=1..64`` (doubled from the first to the last) or ``rate=1,2,5`` (as they are).

    Raises:
        UsageError: the text is not of this form, or the loads do not ascend.
    """
    match = _WRITTEN.match(text)
    if match is None:
        raise UsageError(f"cannot read {text!r} as a sweep", hint=_HINT)
    axis, written = match[1], match[2]
    low, dots, high = written.partition("..")
    try:
        loads = _doubled(float(low), float(high)) if dots else [*map(float, written.split(","))]
    except ValueError:
        raise UsageError(f"cannot read {text!r} as a sweep", hint=_HINT) from None
    if any(not 0 < load <= 1e6 for load in loads) or sorted(set(loads)) != loads or not loads:
        raise UsageError(f"the loads of --sweep {text} must be above 0 and ascend", hint=_HINT)
    if axis == "users" and any(load != int(load) or load > 10_000 for load in loads):
        raise UsageError(f"--sweep {text}: users come whole, and at most 10,000")
    if len(loads) > MAX_STAGES:
        raise UsageError(f"--sweep {text} has {len(loads)} stages; at most {MAX_STAGES}")
    return {"axis": axis, "loads": tuple(loads), "refine": bool(dots)}


def _doubled(low: float, high: float) -> list[float]:
    if not 0 < low < high <= 1e6:
        raise ValueError("the range is empty")
    loads = [low]
    while loads[-1] * 2 < high:
        loads.append(loads[-1] * 2)
    return [*loads, high]


@dataclass(frozen=True)
class StageSeen:
    """What one stage showed. Rates are per second; ``valid`` says whether it may be believed.

    ``offered`` is what the schedule really held in the window (a Poisson process does not keep
    its rate to the request); None in a closed loop. ``verdict`` is that of the objectives.
    """

    load: float
    throughput: float
    seconds: float
    offered: float | None = None
    verdict: str | None = None
    valid: bool = True

    @property
    def follows(self) -> bool:
        """Whether an open loop's requests were answered as fast as they came.

        In a steady state they are, but for the requests in flight at both ends of the window:
        a twentieth, or three requests, may be missing.
        """
        if self.offered is None:
            return True  # a closed loop waits
        missing = (self.offered - self.throughput) * self.seconds
        return missing <= max(_MISSING_SHARE * self.offered * self.seconds, _MISSING)

    @property
    def good(self) -> bool:
        """Whether it was within the objectives, or without any, kept up."""
        return self.valid and (self.follows if self.verdict is None else self.verdict == "PASS")


def next_load(sweep: Sweep, seen: Sequence[StageSeen]) -> float | None:
    """Return the load of the next stage; None where the sweep is over.

    First the sweep's own loads in their order, until the server is clearly saturated or stages
    cannot be believed. Then, where it refines, the middle between the highest load that was good
    and the lowest above it that was not, until they are a tenth apart.
    """
    tried = {stage.load for stage in seen}
    if not over(sweep, seen):
        return next((load for load in sweep.loads if load not in tried), None)
    return _between(sweep, seen) if sweep.refine else None


def over(sweep: Sweep, seen: Sequence[StageSeen]) -> str | None:
    """Return why no higher load is tried; None where one is."""
    climbed = [stage for stage in seen if stage.load in sweep.loads]
    if not climbed:
        return None
    if climbed[-1].load == sweep.loads[-1]:
        return f"{climbed[-1].load:g} was the last load asked for"
    if len(climbed) > 1 and not climbed[-1].valid and not climbed[-2].valid:
        return "two stages in a row cannot be believed, and a higher load still less"
    last = climbed[-3:]
    if sweep.axis == "rate":
        if len(last) > 1 and not last[-1].follows and not last[-2].follows:
            return "two stages in a row answered fewer requests than came"
    elif len(last) > 2 and all(
        higher.throughput < _GAIN * lower.throughput for lower, higher in pairwise(last)
    ):
        return "twice more users in a row brought less than 5 % more throughput"
    return None


def _between(sweep: Sweep, seen: Sequence[StageSeen]) -> float | None:
    ranked = sorted(seen, key=lambda stage: stage.load)
    low = max((stage.load for stage in ranked if stage.good), default=None)
    if low is None:
        return None
    high = min((s.load for s in ranked if s.load > low and s.valid and not s.good), default=None)
    if high is None or high / low < _NEAR or len(seen) >= MAX_STAGES:
        return None
    middle = (low + high) / 2
    if sweep.axis == "users":
        middle = float(int(middle))
        return None if middle in (low, high) else middle
    return float(f"{middle:.3g}")


def knee(sweep: Sweep, seen: Sequence[StageSeen]) -> dict[str, Any] | None:
    """Return the knee: the load, its throughput, and why there; None where nothing shows any.

    The load is None where it was not reached.

    Of an open loop it is the highest load up to which every stage was answered as fast as it
    came. Of a closed loop it is where throughput² / users is greatest: by Little's law that is
    throughput over latency, which Kleinrock calls power and takes as the proper operating point
    (*Power and deterministic rules of thumb for probabilistic problems in computer
    communications*, ICC 1979).
    """
    ranked = sorted((s for s in seen if s.valid), key=lambda stage: stage.load)
    if not ranked:
        return None
    if sweep.axis == "users":
        best = max(ranked, key=lambda s: s.throughput**2 / s.load)
        if best.throughput <= 0:
            return None
        edge = " (the highest tried: it may lie above)" if best is ranked[-1] else ""
        why = f"there throughput over latency is greatest{edge}"
        return {"load": best.load, "throughput": best.throughput, "why": why}
    kept: list[StageSeen] = []
    for stage in ranked:
        if not stage.follows:
            break
        kept.append(stage)
    if not kept:
        return None
    best = kept[-1]
    if len(kept) == len(ranked):
        why = f"every load up to {best.load:g}/s was answered as fast as it came"
        return {"load": None, "throughput": best.throughput, "why": why}
    above = ranked[len(kept)]
    why = (
        f"at {above.load:g}/s only {above.throughput:.3g}/s of {above.offered or 0:.3g}/s "
        "were answered"
    )
    return {"load": best.load, "throughput": best.throughput, "why": why}


def highest_within(seen: Sequence[StageSeen]) -> dict[str, Any] | None:
    """Return the highest load that met the objectives with none failing below, and why there.

    None where no objective was set, or none met them. A stage that cannot be believed, or had too
    few samples to decide, as low rates have, speaks neither for the load nor against it.
    """
    judged = sorted(
        (s for s in seen if s.verdict is not None and s.valid), key=lambda stage: stage.load
    )
    failing = next((s.load for s in judged if s.verdict == "FAIL"), math.inf)
    passing = [s.load for s in judged if s.verdict == "PASS" and s.load < failing]
    if not passing:
        return None
    above = next((s for s in judged if s.load > passing[-1]), None)
    if above is None:
        return {"load": passing[-1], "why": "it was the highest tried"}
    return {"load": passing[-1], "why": f"at {above.load:g} the verdict was {above.verdict}"}
