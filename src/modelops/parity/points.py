"""At which sizes parity is checked: the smallest, two between, and the largest that fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from modelops.errors import UsageError
from modelops.signature import DimRange

Sizes = dict[str, int]


@dataclass(frozen=True)
class Point:
    """One set of sizes, by dim."""

    label: str
    dims: Sizes


def choose_points(
    dims: Mapping[str, DimRange],
    *,
    example: Mapping[str, int],
    nbytes: Callable[[Sizes], int],
    budget: int,
) -> list[Point]:
    """Choose the points at which an artifact is compared with eager.

    Args:
        dims: the range of every symbolic dim.
        example: the sizes that the model was traced at; no other point repeats them whole.
        nbytes: estimated bytes that one run needs at given sizes.
        budget: bytes that one run may need.

    Returns:
        At least four points (fewer where the ranges hold fewer sizes): the minimum, an odd one
        between, another with the dims pulled apart, and the largest that fits the budget.

    Raises:
        UsageError: not even the smallest sizes fit the budget.
    """
    low = {name: r.min for name, r in dims.items()}
    if nbytes(low) > budget:
        raise UsageError(
            f"the smallest sizes need about {nbytes(low) / 2**20:,.0f} MiB, over the memory "
            f"budget of {budget / 2**20:,.0f} MiB",
            hint="raise it with --memory-budget",
        )
    high = _largest(dims, nbytes, budget)
    between = {name: _odd(low[name], high[name], example.get(name)) for name in dims}
    apart = {
        name: _near(low[name], high[name], example.get(name), top=position % 2 == 0)
        for position, name in enumerate(dims)
    }
    crossed = {
        name: _near(low[name], high[name], example.get(name), top=position % 2 == 1)
        for position, name in enumerate(dims)
    }
    points: list[Point] = []
    for label, sizes in (
        ("minimum", low),
        ("between", between),
        ("wide", apart),
        ("long", crossed),
        ("largest", high),
    ):
        if all(p.dims != sizes for p in points):
            points.append(Point(label, sizes))
    return points


def _largest(dims: Mapping[str, DimRange], nbytes: Callable[[Sizes], int], budget: int) -> Sizes:
    sizes = {name: r.max for name, r in dims.items()}
    while nbytes(sizes) > budget:
        # Halving the dim with the most room keeps the shape of the largest request.
        widest = max(sizes, key=lambda name: sizes[name] / max(dims[name].min, 1))
        sizes[widest] = max(dims[widest].min, sizes[widest] // 2)
    return sizes


def _odd(low: int, high: int, avoid: int | None) -> int:
    middle = low + (high - low) // 3
    candidates = [*range(middle | 1, high + 1, 2), *range(middle | 1, low - 1, -2), middle]
    return next((c for c in candidates if low <= c <= high and c != avoid), low)


def _near(low: int, high: int, avoid: int | None, *, top: bool) -> int:
    start = low + (high - low) * (3 if top else 1) // (4 if top else 8)
    candidates = [*range(start, high + 1), *range(start, low - 1, -1)]
    return next((c for c in candidates if c != avoid), low)
