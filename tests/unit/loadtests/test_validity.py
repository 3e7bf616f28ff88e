from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from modelops_loadtests import validity
from modelops_loadtests.samples import Sample, SampleTable

SUMMARY = {"ttft_ms": {"p50": 50.0}, "e2e_ms": {"p50": 900.0}}
WELL = {
    "cpu_share": 0.3, "cpu_wait_share": 0.02, "lag_p99_ms": 1.5, "read_lag_p99_ms": 4.0,
    "send_lag_p99_ms": 0.2, "queued_p99_ms": 2.0, "coalesced_share": 0.002, "stamps": "kernel",
    "rate": {"asked": 100.0, "scheduled": 101.0, "delivered": 100.9},
    "tokens": {"input": {"asked": 64.0, "counted": 65.0, "ratio": 1.016}, "output": None},
}  # fmt: skip


def problems(summary: Any = SUMMARY, **client: Any) -> list[str]:
    return validity.problems({**WELL, **client}, summary)


def test_a_client_that_was_well_is_believed() -> None:
    assert problems() == []
    assert problems(queued_p99_ms=None, rate=None, coalesced_share=None, tokens=None) == []
    assert problems(send_lag_p99_ms=None) == []


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ({"cpu_share": 0.95}, "95% of its one core (bound 90%)"),
        ({"lag_p99_ms": 60.0}, "p99 of its loop's lag was 60.0 ms (bound 20.0 ms); it waited"),
        ({"lag_p99_ms": None}, "was not recorded"),
        ({"send_lag_p99_ms": 4.0}, "handing a request to the kernel was 4.0 ms (bound 3.0 ms)"),
        ({"queued_p99_ms": 30.0}, "p99 from scheduled to sent was 30.0 ms (bound 10.0 ms)"),
        ({"coalesced_share": 0.06}, "have it flush"),
        ({"coalesced_share": 0.02, "lag_p99_ms": 12.0}, "may have read too late"),
    ],
)
def test_l6_each_bound_says_what_was_beyond_it_and_what_to_change(
    client: dict[str, Any], says: str
) -> None:
    (problem,) = problems(**client)
    assert says in problem


def test_a_client_that_was_late_by_less_than_a_gap_is_not_blamed_for_many_chunks() -> None:
    def told(gap: float) -> str:
        summary = {**SUMMARY, "tpot_ms": {"p50": gap}}
        (problem,) = problems(summary, coalesced_share=0.28, lag_p99_ms=8.5)
        return problem

    assert "8.5 ms (p99) where tokens are 270 ms apart, so the server" in told(270.0)
    assert "may have read too late" in told(5.0)


def test_l12_a_rate_that_is_more_than_1_percent_off_the_schedule() -> None:
    def at(delivered: float) -> list[str]:
        return problems(rate={"asked": 100.0, "scheduled": 100.0, "delivered": delivered})

    assert at(99.1) == []
    (problem,) = at(98.5)
    assert "98.5 requests/s were sent of 100" in problem
    # What chance made of a Poisson schedule is no fault of the generator's.
    assert problems(rate={"asked": 100.0, "scheduled": 90.0, "delivered": 90.0}) == []


def test_l11_usage_that_is_not_what_was_asked_for() -> None:
    def told(ratio: float, side: str = "input") -> list[str]:
        return problems(tokens={side: {"asked": 100.0, "counted": 100 * ratio, "ratio": ratio}})

    (problem,) = told(1.3)
    assert "counts 130 tokens in prompts that were to have 100" in problem
    assert told(0.7)
    assert told(1.3, "output")
    assert told(0.4, "output") == []  # a reply may end before its limit


def test_lateness_is_held_against_what_it_could_falsify() -> None:
    seconds = {"ttft_ms": {"p50": 2000.0}, "e2e_ms": {"p50": 30_000.0}}
    assert problems(seconds, lag_p99_ms=100.0, queued_p99_ms=100.0) == []
    assert problems(lag_p99_ms=12.0) == []
    # Arrivals that are stamped after the read are late by all of it.
    assert len(problems(lag_p99_ms=12.0, stamps="user")) == 1
    assert problems({"ttft_ms": {"p50": None}, "e2e_ms": {"p50": None}}) == []


def test_the_bounds_shown_are_the_bounds_judged_by() -> None:
    limits = validity.bounds(WELL, SUMMARY)
    assert limits["lag_p99_ms"] == 20.0
    for key in ("cpu_share", "lag_p99_ms", "send_lag_p99_ms", "queued_p99_ms", "coalesced_share"):
        assert problems(**{key: limits[key]}) == []
        assert len(problems(**{key: limits[key] * 1.01})) == 1


def table(scheduled: list[float], late: float, **more: Any) -> SampleTable:
    return SampleTable.of(
        Sample(sent=at + late * n, end=at + 9, outcome="ok", scheduled=at, **more)
        for n, at in enumerate(scheduled)
    )


def test_a_request_sent_just_after_the_window_is_delivered() -> None:
    """Counting by the window's end, one of eleven that is 0.2 ms late would be 9 % off."""
    on_time = validity.delivered(table(list(np.arange(11) * 0.1), 2e-5), 11, 1.1)
    assert on_time == pytest.approx(10, rel=1e-3)
    dragging = validity.delivered(table(list(np.arange(11) * 0.1), 0.01), 11, 1.1)
    assert dragging == pytest.approx(10 / 1.1)
    missing = validity.delivered(table(list(np.arange(11) * 0.1), 0), 22, 1.1)
    assert missing == pytest.approx(10)
    assert validity.delivered(table([0.5], 0), 1, 1) is None


def test_tokens_told_are_of_requests_that_have_both() -> None:
    samples = SampleTable.of(
        [
            Sample(sent=0, end=1, outcome="ok", asked_input_tokens=100, input_tokens=130),
            Sample(sent=0, end=1, outcome="ok", asked_input_tokens=100),
            Sample(sent=0, end=1, outcome="error", asked_input_tokens=100, input_tokens=900),
        ]
    )
    told = validity.tokens_told(samples)
    assert told["input"] == {"asked": 100.0, "counted": 130.0, "ratio": 1.3}
    assert told["output"] is None
