from __future__ import annotations

import pytest
from scipy import special, stats

from modelops_loadtests.gates.beta import betainc, share_bounds, t_quantile, z_quantile


@pytest.mark.parametrize("a", [0.3, 1, 2.5, 40, 1e3, 2e4])
@pytest.mark.parametrize("b", [0.5, 1, 59, 7e5])
@pytest.mark.parametrize("x", [0.0, 1e-3, 0.03, 0.5, 0.97, 1.0])
def test_the_incomplete_beta_function_equals_scipys(a: float, b: float, x: float) -> None:
    assert betainc(a, b, x) == pytest.approx(special.betainc(a, b, x), rel=1e-7, abs=1e-12)


@pytest.mark.parametrize(("k", "n"), [(0, 100), (3, 500), (499, 500), (500, 500), (7.5, 81.2)])
def test_bounds_of_a_share_are_clopper_pearsons(k: float, n: float) -> None:
    low = stats.beta.ppf(0.05, k, n - k + 1) if k else 0.0
    high = stats.beta.ppf(0.95, k + 1, n - k) if k < n else 1.0
    assert share_bounds(k / n, n, 0.05) == pytest.approx((low, high), rel=1e-6)


@pytest.mark.parametrize("alpha", [0.001, 0.025, 0.05, 0.2])
@pytest.mark.parametrize("degrees", [1, 2, 9, 19, 49, 50, 1e4])
def test_quantiles_equal_scipys(degrees: float, alpha: float) -> None:
    assert t_quantile(degrees, alpha) == pytest.approx(stats.t.isf(alpha, degrees), rel=2e-4)
    assert z_quantile(alpha) == pytest.approx(stats.norm.isf(alpha), rel=1e-9)
