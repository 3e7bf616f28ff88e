"""Where the error of each checked output stands against the limit, on one logarithmic axis."""

from __future__ import annotations

import math
from dataclasses import dataclass

from modelops.artifact.manifest import OutputParity, Parity, ParityPoint
from modelops.report.verdict import error_of

_DECADES = 3  # the narrowest axis
_WIDEST = 14


@dataclass(frozen=True)
class Row:
    """One output at one point; ``at`` is its place in percent of the axis, None off the scale."""

    point: ParityPoint
    output: OutputParity
    first: bool
    at: float | None


@dataclass(frozen=True)
class Picture:
    """The rows; the place, in percent, of ``limit``; and the axis's decades with theirs.

    ``limit`` is the relative error beyond which no value can keep the tolerance.
    """

    rows: tuple[Row, ...]
    limit: float
    limit_at: float | None
    ticks: tuple[tuple[str, float], ...]


def picture(parity: Parity) -> Picture:
    """Lay out every output of every point; an error of exactly 0 stands at the left end."""
    outputs = [o for p in parity.points for o in p.outputs]
    # A value may differ by atol·RMS + rtol·|eager|; relative to the larger of RMS and |eager|,
    # which is what the errors are relative to, that is never more than the sum.
    limit = parity.tolerance.atol + parity.tolerance.rtol
    errors = (error_of(o) for o in outputs)
    logs = [math.log10(e) for e in (*errors, limit) if e] or [0.0]
    high = math.floor(max(logs)) + 1
    low = max(min(math.floor(min(logs)), high - _DECADES), high - _WIDEST)

    def place(value: float | None) -> float | None:
        if value is None:
            return None
        if value == 0:
            return 0.0
        return 100 * min(max((math.log10(value) - low) / (high - low), 0.0), 1.0)

    step = max(1, math.ceil((high - low) / 3))
    return Picture(
        rows=tuple(
            Row(point, output, first=index == 0, at=place(error_of(output)))
            for point in parity.points
            for index, output in enumerate(point.outputs)
        ),
        limit=limit,
        limit_at=place(limit) if limit else None,
        ticks=tuple((f"1e{d}", 100 * (d - low) / (high - low)) for d in range(low, high + 1, step)),
    )
