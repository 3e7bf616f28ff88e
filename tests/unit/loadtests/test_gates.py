from __future__ import annotations

import numpy as np
import pytest

from modelops.errors import UsageError
from modelops_loadtests.gates import Gate, Measured, judge, overall, parse


def seen(values: list[float], failed: int = 0, **rates: float) -> Measured:
    total = len(values) + failed
    return Measured({"e2e": np.array(values)}, rates, total, failed)


def test_latencies_and_errors_are_bounded_from_above_and_throughput_from_below() -> None:
    assert parse(["e2e_p95_ms=300", "error_rate=0.1%", "qps = 50", "e2e_p99.9_ms=1e3"]) == (
        Gate("e2e_p95_ms", 300, True),
        Gate("error_rate", 0.001, True),
        Gate("qps", 50, False),
        Gate("e2e_p99.9_ms", 1000, True),
    )


@pytest.mark.parametrize(
    "text",
    [
        *("e2e_p95_ms", "=3", "e2e_p95_ms=", "e2e_p95_ms=fast", "e2e_p95_ms=nan", "qps=inf"),
        *("qps=-1", "error_rate=2", "e2e_p0_ms=3", "e2e_p95=3", "qps_p95_ms=3", "", "qps=5%"),
    ],
)
def test_what_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse([text])


def test_an_unknown_metric_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["e2e_p95=300"])
    assert "e2e_p95_ms" in str(caught.value.hint)
    with pytest.raises(UsageError) as caught:
        parse(["errorrate=0"])
    assert "error_rate" in str(caught.value.hint)


def test_a_metric_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="twice"):
        parse(["qps=1", "qps=2"])


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("e2e_p95_ms=100", "PASS"),
        ("e2e_p95_ms=99", "FAIL"),
        ("e2e_mean_ms=100", "PASS"),
        ("e2e_max_ms=99", "FAIL"),
        ("qps=50", "PASS"),
        ("qps=51", "FAIL"),
        ("error_rate=0", "PASS"),
    ],
)
def test_each_direction(text: str, verdict: str) -> None:
    (gate,) = parse([text])
    assert judge(gate, seen([0.1] * 100, qps=50, error_rate=0)).verdict == verdict


@pytest.mark.parametrize(
    "text", ["ttft_p95_ms=1e9", "tpot_p50_ms=1e9", "input_tokens_per_s=0", "goodput_rps=0"]
)
def test_l13_a_gate_on_a_missing_metric_fails(text: str) -> None:
    (gate,) = parse([text])
    result = judge(gate, seen([0.1] * 500, qps=50))
    assert (result.verdict, result.value) == ("FAIL", None)


def test_l14_nine_samples_and_an_outlier_are_inconclusive_and_say_how_many_are_needed() -> None:
    (gate,) = parse(["e2e_p95_ms=300"])
    result = judge(gate, seen([0.1] * 8 + [5.0]))
    assert (result.verdict, result.samples_needed) == ("INCONCLUSIVE", 59)
    assert "59" in result.detail


def test_l14_too_few_samples_never_pass() -> None:
    (gate,) = parse(["e2e_p99_ms=300"])
    assert judge(gate, seen([0.1] * 298)).verdict == "INCONCLUSIVE"
    assert judge(gate, seen([0.1] * 299)).verdict == "PASS"


def test_a_few_samples_that_all_exceed_the_bound_fail() -> None:
    (gate,) = parse(["e2e_p95_ms=300"])
    assert judge(gate, seen([5.0] * 9)).verdict == "FAIL"


def test_l2_failing_fast_does_not_pass_a_latency_gate() -> None:
    p95, mean = parse(["e2e_p95_ms=300", "e2e_mean_ms=300"])
    result = judge(p95, seen([0.1] * 90, failed=10))
    assert (result.verdict, result.value) == ("FAIL", None)
    assert judge(p95, seen([0.1] * 97, failed=3)).verdict == "PASS"
    assert judge(mean, seen([0.1] * 97, failed=3)).verdict == "FAIL"


def test_the_worst_verdict_decides() -> None:
    gates = parse(["e2e_p99_ms=300", "qps=10"])
    few = [judge(g, seen([0.1] * 20, qps=50)) for g in gates]
    assert overall(few) == "INCONCLUSIVE"
    assert overall([judge(g, seen([0.1] * 20, qps=5)) for g in gates]) == "FAIL"
    assert overall([]) is None
