from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from modelops_loadtests.gates import GateResult, Measured, judge, overall, parse, undecided
from modelops_loadtests.gates.series import BLOCKS


def seen(values: list[float], failed: int = 0, **rates: float) -> Measured:
    """Requests of these seconds, and failed ones spread evenly among them."""
    places = np.linspace(0, len(values), failed + 2)[1:-1].astype(int)
    series = np.insert(np.array(values, dtype=np.float64), places, np.inf)
    per_second = {name: np.full(BLOCKS, rate) for name, rate in rates.items()}
    return Measured({"e2e": series}, np.isinf(series), per_second)


def verdict(text: str, measured: Measured) -> GateResult:
    (gate,) = parse([text])
    result = judge(gate, measured)
    json.dumps(asdict(result), allow_nan=False)  # what is infinite has no place in a report
    return result


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("e2e_p95_ms=100", "PASS"),
        ("e2e_p95_ms=99", "FAIL"),
        ("e2e_mean_ms=100", "PASS"),
        ("e2e_mean_ms=99", "FAIL"),
        ("e2e_max_ms=100", "PASS"),
        ("e2e_max_ms=99", "FAIL"),
        ("qps=50", "PASS"),
        ("qps=51", "FAIL"),
        ("error_rate=0", "PASS"),
    ],
)
def test_each_direction(text: str, expected: str) -> None:
    assert verdict(text, seen([0.1] * 100, qps=50)).verdict == expected


@pytest.mark.parametrize(
    "text", ["ttft_p95_ms=1e9", "tpot_p50_ms=1e9", "input_tokens_per_s=0", "goodput_rps=0"]
)
def test_l13_a_gate_on_a_missing_metric_fails(text: str) -> None:
    result = verdict(text, seen([0.1] * 500, qps=50))
    assert (result.verdict, result.value) == ("FAIL", None)


@pytest.mark.parametrize("text", ["e2e_p95_ms=1e9", "e2e_max_ms=1e9", "error_rate=1", "qps=0"])
def test_l15_no_sample_never_passes(text: str) -> None:
    assert verdict(text, seen([], qps=0)).verdict == "FAIL"


def test_l14_nine_samples_and_an_outlier_are_inconclusive_and_say_how_many_are_needed() -> None:
    result = verdict("e2e_p95_ms=300", seen([0.1] * 8 + [5.0]))
    assert (result.verdict, result.samples_needed) == ("INCONCLUSIVE", 59)
    assert "59" in result.detail


def test_l14_too_few_samples_never_pass() -> None:
    assert verdict("e2e_p99_ms=300", seen([0.1] * 298)).verdict == "INCONCLUSIVE"
    assert verdict("e2e_p99_ms=300", seen([0.1] * 299)).verdict == "PASS"


def test_a_few_samples_that_all_exceed_the_bound_fail() -> None:
    assert verdict("e2e_p95_ms=300", seen([5.0] * 9)).verdict == "FAIL"


def test_l2_failing_fast_does_not_pass_a_latency_gate() -> None:
    result = verdict("e2e_p95_ms=300", seen([0.1] * 450, failed=50))
    assert (result.verdict, result.value) == ("FAIL", None)
    assert "50 of them failed" in result.detail
    assert verdict("e2e_p95_ms=300", seen([0.1] * 970, failed=30)).verdict == "PASS"
    assert verdict("e2e_mean_ms=300", seen([0.1] * 97, failed=3)).verdict == "FAIL"


def test_no_failure_meets_a_bound_of_zero_and_any_breaks_it() -> None:
    held = verdict("error_rate=0", seen([0.1] * 100))
    assert held.verdict == "PASS"
    assert "the true rate is below 0.03 " in held.detail  # the rule of three
    assert verdict("error_rate=0", seen([0.1] * 10**4, failed=1)).verdict == "FAIL"


def test_an_error_rate_above_zero_needs_the_rule_of_three() -> None:
    few = verdict("error_rate=0.1%", seen([0.1] * 500))
    assert (few.verdict, few.samples_needed) == ("INCONCLUSIVE", 2995)
    assert verdict("error_rate=0.1%", seen([0.1] * 2995)).verdict == "PASS"


def test_an_outage_fails_an_error_rate_though_it_is_but_one_event() -> None:
    outage = np.array([0.1] * 400 + [np.inf] * 100)
    result = verdict("error_rate=1%", Measured({"e2e": outage}, np.isinf(outage), {}))
    assert result.verdict == "FAIL"


def test_a_throughput_that_varies_has_an_interval() -> None:
    rng = np.random.default_rng(5)
    blocks = rng.poisson(5.0, BLOCKS) / 0.1  # 50 a second, in blocks of 0.1 s
    measured = Measured({}, np.zeros(2000, bool), {"qps": blocks.astype(np.float64)})
    assert verdict("qps=45", measured).verdict == "PASS"
    assert verdict("qps=55", measured).verdict == "FAIL"
    assert verdict(f"qps={blocks.mean() * 1.001}", measured).verdict == "INCONCLUSIVE"


def test_goodput_is_judged_where_there_are_latency_objectives() -> None:
    met = np.arange(1000) % 10 != 0
    measured = Measured({}, np.zeros(1000, bool), {}, met)
    assert verdict("goodput_share=85%", measured).verdict == "PASS"
    assert verdict("goodput_share=95%", measured).verdict == "FAIL"
    assert "latency objective" in verdict("goodput_share=0.5", seen([0.1] * 99)).detail


def test_correlated_samples_count_for_less() -> None:
    """The same latencies, shuffled and in bursts of 100: only the first are worth their number."""
    rng = np.random.default_rng(3)
    bursts = np.repeat(np.arange(40) % 14 == 5, 100)  # 7.5 %
    slow = np.where(bursts, 0.5, 0.1) * rng.uniform(0.9, 1.1, 4000)
    shuffled = verdict("e2e_p90_ms=300", seen(list(rng.permutation(slow))))
    burst = verdict("e2e_p90_ms=300", seen(list(slow)))
    assert shuffled.verdict == "PASS"
    assert burst.verdict == "INCONCLUSIVE"
    assert burst.samples_needed is not None
    assert burst.samples_needed > 2 * burst.samples
    assert "independent" in burst.detail


def test_how_the_median_drifts_says_nothing_of_how_long_a_pass_takes() -> None:
    # The first half is slightly slower; one burst of eight far below the bound is what p95 sees.
    series = np.where(np.arange(160) < 80, 0.021, 0.020) + np.arange(160) * 1e-7
    series[40:48] = 0.088
    found = verdict("e2e_p95_ms=200", seen(series.tolist()))
    assert (found.verdict, found.samples) == ("INCONCLUSIVE", 160)
    assert found.samples_needed is not None
    assert found.samples_needed < 10 * 160


def test_more_looks_at_one_run_ask_for_more_of_each() -> None:
    (gate,) = parse(["e2e_p95_ms=300"])
    fifty_nine = seen([0.1] * 59)
    assert judge(gate, fifty_nine).verdict == "PASS"
    assert judge(gate, fifty_nine, looks=4).verdict == "INCONCLUSIVE"


def test_the_worst_verdict_decides() -> None:
    gates = parse(["e2e_p99_ms=300", "qps=10"])
    few = [judge(g, seen([0.1] * 20, qps=50)) for g in gates]
    assert overall(few) == "INCONCLUSIVE"
    assert overall([judge(g, seen([0.1] * 20, qps=5)) for g in gates]) == "FAIL"
    assert overall([]) is None


def test_going_on_decides_only_what_is_open_and_can_be_decided() -> None:
    open_ = verdict("e2e_p99_ms=300", seen([0.1] * 100))
    more = undecided([open_, verdict("qps=10", seen([0.1] * 100, qps=50))])
    assert more is not None
    assert (more.more, more.factor) == (199, pytest.approx(2.99))
    assert "e2e_p99_ms" in more.because
    assert undecided([open_, verdict("qps=10", seen([0.1] * 100, qps=5))]) is None
    assert undecided([verdict("qps=10", seen([0.1] * 100, qps=50))]) is None


def test_a_bound_at_the_percentile_itself_is_not_worth_going_on_for() -> None:
    values = np.random.default_rng(4).permutation(np.linspace(0.1, 0.2, 2001))
    result = verdict("e2e_p50_ms=150", seen(list(values)))
    assert result.verdict == "INCONCLUSIVE"
    assert result.samples_needed is None or result.samples_needed > 100 * result.samples


@pytest.mark.parametrize("bound", ["0.0999", "0.09999", "0.1", "0.10001", "0.1001"])
def test_however_close_the_bound_is_how_many_are_needed_is_told_or_that_none_would(
    bound: str,
) -> None:
    failed_at = np.random.default_rng(8).permutation(20_000) < 2000
    result = verdict(f"error_rate={bound}", Measured({}, failed_at, {}))
    assert result.verdict == "INCONCLUSIVE"
    assert (result.samples_needed is None) == (abs(float(bound) - 0.1) < 2e-5)
    assert result.samples_needed is None or result.samples_needed > 10 * result.samples


def test_a_million_samples_are_judged_while_one_waits() -> None:
    rng = np.random.default_rng(1)
    measured = seen([0.1])
    measured = Measured({"itl": rng.lognormal(-4, 0.5, 10**6)}, measured.failed_at, {})
    result = verdict("itl_p99_ms=70", measured)
    assert (result.verdict, result.samples) == ("PASS", 10**6)
