"""The outcome of an export in a headline and a few sentences, the same on page and terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from modelops.artifact.manifest import OutputParity, Parity, ParityPoint, Tolerance
from modelops.report.units import number


@dataclass(frozen=True)
class Verdict:
    """``tone`` colours it; ``headline`` stands alone, ``details`` say on what it rests."""

    tone: Literal["good", "bad"]
    headline: str
    details: tuple[str, ...]


def judge(parity: Parity, *, passed: bool, failures: Sequence[str] = ()) -> Verdict:
    """Return the verdict on ``parity`` and on the other checks' ``failures``."""
    if passed:
        return Verdict("good", _right(parity), (_margin(parity),))
    missed = first_failure(parity)
    if missed is not None:
        headline = _off(*missed, parity.tolerance)
        bad = sum(not point.passed for point in parity.points)
        why = (missed[1].why,) if missed[1].why else ()
        details = (
            *why,
            f"{bad} of {len(parity.points)} checked points failed. "
            f"The rule: {tolerance_text(parity.tolerance)}.",
            *failures,
        )
    elif failures:
        headline, details = f"NOT RIGHT: {failures[0]}", tuple(failures[1:])
    else:
        headline, details = "NOT RIGHT: nothing was compared with eager PyTorch", ()
    return Verdict("bad", headline, details)


def first_failure(parity: Parity) -> tuple[ParityPoint, OutputParity] | None:
    """Return the first output that did not hold, and its point."""
    found = ((p, o) for p in parity.points for o in p.outputs if not o.passed)
    return next(found, None)


def worst(parity: Parity) -> tuple[ParityPoint, OutputParity] | None:
    """Return the output with the largest finite error for its size, and its point."""
    found = [(p, o) for p in parity.points for o in p.outputs if error_of(o) is not None]
    return max(found, key=lambda item: error_of(item[1]) or 0.0, default=None)


def error_of(output: OutputParity) -> float | None:
    """Return the error to judge an output by, None where it has none that is finite.

    That is the relative error; of integers, which must be equal, the absolute one.
    """
    error = output.max_abs if output.max_rel is None else output.max_rel
    return error if error is not None and math.isfinite(error) else None


def dims_text(dims: Mapping[str, int]) -> str:
    """Return ``batch 3, sequence 7``; where no dim is symbolic, say so."""
    return ", ".join(f"{name} {size}" for name, size in dims.items()) or "fixed sizes"


def shared_dims(parity: Parity) -> tuple[str, ...]:
    """Return the dims that every point has, in order; none where the points differ in them."""
    found = {tuple(point.dims) for point in parity.points}
    return found.pop() if len(found) == 1 else ()


def sizes_text(point: ParityPoint, dims: Sequence[str]) -> str:
    """Return ``3 × 7`` where ``dims`` head the column, and the dims with their names elsewhere."""
    return " × ".join(str(point.dims[d]) for d in dims) if dims else dims_text(point.dims)


def tolerance_text(tolerance: Tolerance) -> str:
    """Return the rule that every value, and every row, had to keep."""
    return (
        f"every value within {number(tolerance.atol)}·RMS + {number(tolerance.rtol)}·|eager|, "
        f"where RMS is that of eager's output; every row's cosine at least "
        f"{tolerance.min_cosine:g}; integers equal"
    )


def _right(parity: Parity) -> str:
    count = len(parity.points)
    where = "1 point" if count == 1 else f"{count} points"
    return f"Right: equal to eager PyTorch at {where}"


def _margin(parity: Parity) -> str:
    rule = f"The rule: {tolerance_text(parity.tolerance)}."
    found = worst(parity)
    if found is None:
        return rule
    point, output = found
    if not output.max_abs:
        return f"No value differs at all. {rule}"
    relative = f" ({number(output.max_rel)} relative)" if output.max_rel is not None else ""
    return (
        f"The largest difference is {number(output.max_abs)}{relative}, in {output.output} at "
        f"{dims_text(point.dims)}. {rule}"
    )


def _off(point: ParityPoint, output: OutputParity, tolerance: Tolerance) -> str:
    at = f"at {dims_text(point.dims)}"
    if output.max_abs is None or not math.isfinite(output.max_abs):
        return f"NOT RIGHT: {output.output} cannot be compared with eager PyTorch {at}"
    low = output.cosine is not None and output.cosine < tolerance.min_cosine
    cosine = f" (cosine {number(output.cosine)})" if low else ""
    return f"NOT RIGHT: {output.output} is off by {number(output.max_abs)}{cosine} {at}"
