from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from modelops_loadtests.percentiles import (
    binomial_tail,
    needed,
    percentile,
    rate_bound,
    surely_above,
)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=200),
    st.sampled_from([1.0, 7.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0]),
)
def test_equals_numpys_nearest_rank(values: list[float], percent: float) -> None:
    # numpy's rank is in floating point; asked a hair below, it cannot round up past the exact one.
    asked = np.percentile(values, max(percent - 1e-9, 0), method="inverted_cdf")
    assert percentile(np.array(values), percent) == asked


def test_the_rank_is_exact_where_floating_point_is_not() -> None:
    assert percentile(np.arange(1.0, 101.0), 7) == 7


def test_no_sample_has_no_percentile() -> None:
    assert percentile(np.array([]), 95) is None


def test_failures_rank_above_every_value() -> None:
    values = np.arange(1.0, 96.0)
    assert percentile(values, 95, failed=5) == 95
    assert percentile(values, 95, failed=6) == math.inf


@pytest.mark.parametrize(("percent", "n"), [(50, 5), (90, 29), (95, 59), (99, 299), (99.9, 2995)])
def test_needed_is_where_the_largest_sample_bounds_the_percentile(percent: float, n: int) -> None:
    assert needed(percent) == n
    assert (percent / 100) ** n <= 0.05 < (percent / 100) ** (n - 1)


@pytest.mark.parametrize(("k", "n", "q"), [(1, 9, 0.05), (3, 9, 0.05), (40, 59, 0.5), (0, 4, 0.1)])
def test_binomial_tail_equals_scipys(k: int, n: int, q: float) -> None:
    assert binomial_tail(k, n, q) == pytest.approx(stats.binom.sf(k - 1, n, q), rel=1e-9)


@pytest.mark.parametrize(("k", "n"), [(0, 100), (3, 500), (499, 500)])
def test_rate_bound_is_clopper_pearsons(k: int, n: int) -> None:
    assert rate_bound(k, n) == pytest.approx(stats.beta.ppf(0.95, k + 1, n - k), rel=1e-6)


def test_one_slow_of_nine_proves_nothing_and_all_slow_does() -> None:
    nine = np.array([0.1] * 8 + [9.0])
    assert not surely_above(nine, 95, 0.3)
    assert surely_above(np.full(9, 9.0), 95, 0.3)
