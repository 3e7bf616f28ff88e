"""Where parity is checked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops.errors import UsageError
from modelops.parity import choose_points, example_sizes
from modelops.signature import DimRange

TOKENS = {"batch": DimRange(min=1, max=64), "sequence": DimRange(min=2, max=512)}


def nbytes(sizes: dict[str, int]) -> int:
    total = 4
    for size in sizes.values():
        total *= size
    return total


def test_at_least_four_points_and_none_at_the_example_alone() -> None:
    example = example_sizes(TOKENS)
    points = choose_points(TOKENS, example=example, nbytes=nbytes, budget=2**30)
    assert len(points) >= 4
    assert points[0].dims == {"batch": 1, "sequence": 2}
    assert points[-1].dims == {"batch": 64, "sequence": 512}
    assert any(size % 2 for size in points[1].dims.values())
    assert all(p.dims != example for p in points)


def test_the_largest_point_fits_the_budget() -> None:
    points = choose_points(TOKENS, example={}, nbytes=nbytes, budget=10_000)
    assert max(nbytes(p.dims) for p in points) <= 10_000


def test_a_budget_under_the_smallest_sizes_is_refused() -> None:
    with pytest.raises(UsageError, match="memory budget"):
        choose_points(TOKENS, example={}, nbytes=lambda _: 2**40, budget=2**20)


ranges = st.tuples(st.integers(1, 40), st.integers(0, 300)).map(
    lambda t: DimRange(min=t[0], max=t[0] + t[1])
)


@given(st.dictionaries(st.sampled_from("abcd"), ranges, min_size=1, max_size=4))
def test_every_point_and_the_example_lie_in_range(dims: dict[str, DimRange]) -> None:
    example = example_sizes(dims)
    points = choose_points(dims, example=example, nbytes=nbytes, budget=2**50)
    for sizes in [example, *(p.dims for p in points)]:
        assert all(dims[name].min <= size <= dims[name].max for name, size in sizes.items())
    assert len({tuple(p.dims.items()) for p in points}) == len(points)


def test_example_sizes_are_distinct_and_never_one() -> None:
    sizes = example_sizes({name: DimRange(min=1, max=64) for name in "abcdef"})
    assert len(set(sizes.values())) == 6
    assert min(sizes.values()) >= 2
