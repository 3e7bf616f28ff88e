from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops_loadtests.gates.percentiles import needed, percentile, percentile_interval


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


@given(
    st.lists(st.sampled_from([1.0, 2.0, 2.5, 7.0, math.inf]), min_size=1, max_size=120),
    st.sampled_from([50.0, 95.0, 99.0]),
)
def test_an_interval_holds_the_percentile_and_is_made_of_what_was_seen(
    values: list[float], percent: float
) -> None:
    series = np.array(values)
    found = percentile_interval(series, percent)
    assert found.low <= found.value <= found.high
    assert found.value == percentile(series, percent)
    assert {found.low, found.high} <= {*values, -math.inf, math.inf}
    assert 1 <= found.size <= len(values)


def test_independent_samples_have_about_the_order_statistics_of_the_binomial() -> None:
    series = np.random.default_rng(2).permutation(1000) + 1.0
    found = percentile_interval(series, 50)
    assert found.size > 600
    # 474 and 527 are the ranks of the one-sided 95 % bounds on the median of 1,000.
    assert 460 < found.low <= 474
    assert 527 <= found.high < 541
