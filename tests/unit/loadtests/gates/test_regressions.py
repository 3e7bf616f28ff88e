from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

from modelops.errors import UsageError
from modelops_loadtests.gates import (
    GateResult,
    Measured,
    Regression,
    judge_regression,
    parse_regressions,
)
from modelops_loadtests.gates.percentiles import ALPHA, Bounded, percentile_interval
from modelops_loadtests.gates.ratios import difference, mean_of_runs, ratio, ratio_of_runs
from modelops_loadtests.gates.series import BLOCKS


def run(seed: int, n: int = 4000, scale: float = 0.1, failed: float = 0.0) -> Measured:
    rng = np.random.default_rng(seed)
    failed_at = rng.random(n) < failed
    values = np.where(failed_at, np.inf, scale * rng.lognormal(0, 0.3, n))
    per_second = rng.poisson(5, BLOCKS) / 0.1 / scale * 0.1
    return Measured({"e2e": values}, failed_at, {"qps": per_second})


def verdict(text: str, measured: Measured, baseline: Measured) -> GateResult:
    (limit,) = parse_regressions([text])
    result = judge_regression(limit, measured, baseline)
    json.dumps(asdict(result), allow_nan=False)
    return result


def test_a_bare_percentile_is_of_e2e_and_shares_are_in_points() -> None:
    asked = parse_regressions(["p95=5%", "ttft_p99_ms=0.1", "qps=2%", "error_rate=0.1%"])
    assert asked == (
        Regression("e2e_p95_ms", 0.05),
        Regression("ttft_p99_ms", 0.1),
        Regression("qps", 0.02),
        Regression("error_rate", 0.001),
    )
    assert [(g.bound, g.upper) for g in (r.gate for r in asked)] == [
        (1.05, True),
        (1.1, True),
        (0.98, False),
        (0.001, True),
    ]


@pytest.mark.parametrize(
    "text", ["p95", "p95=", "p95=5", "p95=-1%", "p95=x", "speed=5%", "e2e_max=5%", "p0=5%", "=5%"]
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_regressions([text])
    with pytest.raises(UsageError, match="twice"):
        parse_regressions(["p95=5%", "e2e_p95_ms=6%"])


def test_only_what_both_runs_show_passes_or_fails() -> None:
    same, slower = (
        verdict("p95=20%", run(1), run(2)),
        verdict("p95=20%", run(1, scale=0.15), run(2)),
    )
    assert (same.verdict, slower.verdict) == ("PASS", "FAIL")
    assert same.value is not None
    assert slower.value == pytest.approx(1.5, rel=0.1)
    assert slower.metric == "e2e_p95_ms ÷ baseline"
    close = verdict(f"p95={max(1 / same.value - 1, 0):f}", run(2), run(1))
    assert close.verdict == "INCONCLUSIVE"
    assert close.interval is not None
    assert close.interval.low is not None
    assert close.interval.low < close.bound < (close.interval.high or 0)


def test_a_faster_run_is_no_regression_and_less_throughput_is_one() -> None:
    assert verdict("p95=0%", run(1, scale=0.08), run(2)).verdict == "PASS"
    assert verdict("qps=5%", run(1, scale=0.08), run(2)).verdict == "PASS"
    assert verdict("qps=5%", run(1, scale=0.15), run(2)).verdict == "FAIL"


def test_more_failures_are_a_regression_of_the_rate_and_of_what_they_rank_above() -> None:
    assert verdict("error_rate=1%", run(1), run(2)).verdict == "PASS"
    assert verdict("error_rate=1%", run(1, failed=0.05), run(2)).verdict == "FAIL"
    broken = verdict("p95=50%", run(1, failed=0.2), run(2))
    assert (broken.verdict, broken.value) == ("FAIL", None)
    assert verdict("mean=50%", run(1, failed=0.01), run(2)).verdict == "FAIL"
    assert verdict("mean=50%", run(1), run(2, failed=0.01)).verdict == "PASS"
    assert verdict("p95=5%", run(1), run(2, failed=0.2)).verdict == "FAIL"
    assert verdict("ttft_p95=5%", run(1), run(2)).verdict == "FAIL"


def test_too_few_samples_say_how_many_unless_it_is_the_baseline_that_is_short() -> None:
    few = verdict("p99=50%", run(1, n=100), run(2))
    assert few.verdict == "INCONCLUSIVE"
    assert few.samples_needed is not None
    assert few.samples_needed >= 299
    short = verdict("p99=10%", run(1, scale=0.15), run(2, n=100))
    assert (short.verdict, short.samples_needed) == ("INCONCLUSIVE", None)


def test_a_ratios_interval_holds_as_often_as_stated() -> None:
    """Pairs of equal runs: a ratio that excludes 1 on one side is false, in at most 5 %."""
    found = [ratio(*(percentile_interval(run(2 * i + k, 600).timings["e2e"], 90) for k in (0, 1))) for i in range(100)]  # fmt: skip # noqa: E501
    most = int(stats.binom.ppf(0.99, 100, ALPHA))
    assert sum(f.high < 1 for f in found) <= most
    assert sum(f.low > 1 for f in found) <= most
    assert np.median([f.high - f.low for f in found]) < 0.3


def test_what_is_not_known_of_one_run_is_not_known_of_the_difference() -> None:
    a = Bounded(2.0, 1.0, math.inf, 9)
    b = Bounded(4.0, 3.0, 5.0, 9)
    assert difference(a, b).low == -math.inf
    assert difference(a, b).high == pytest.approx(2 + math.hypot(1, 1))
    assert difference(b, Bounded(math.inf, 7.0, math.inf, 9)) == Bounded(math.inf, 2.0, math.inf, 9)
    assert ratio(b, a).high == math.inf


def test_sets_of_runs_are_compared_by_how_runs_vary() -> None:
    a, b = [1.0, 2.0, 3.0, 4.0], [1.5, 2.6, 3.5, 4.6]
    paired = mean_of_runs(a, b, 0.05, paired=True)
    low, high = stats.ttest_rel(b, a).confidence_interval(0.9)
    assert (paired.value, paired.low, paired.high) == pytest.approx((0.55, low, high))
    welch = mean_of_runs(a, b[:3], 0.05, paired=False)
    low, high = stats.ttest_ind(b[:3], a, equal_var=False).confidence_interval(0.9)
    assert (welch.low, welch.high) == pytest.approx((low, high), rel=1e-3)
    assert ratio_of_runs([2.0, 2.0], [3.0, 3.0], 0.05, paired=False).value == pytest.approx(1.5)
