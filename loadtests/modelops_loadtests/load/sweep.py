"""A sweep: which load comes next, where throughput stops following it, what meets the SLOs."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, model_validator

from modelops.errors import UsageError

MAX_STAGES = 64
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
