from __future__ import annotations

import numpy as np
import pytest

from modelops_loadtests import definitions
from modelops_loadtests.definitions import TIMINGS, latency_bounds, met, timing_of
from modelops_loadtests.measure import Window, measure, measured, summary
from modelops_loadtests.samples import Sample, SampleTable


def stream(sent: float = 0.0, **more: object) -> Sample:
    known = {"end": sent + 1.0, "outcome": "ok", **more}
    return Sample(sent=sent, **known)  # type: ignore[arg-type]


def test_each_figure_of_one_stream() -> None:
    table = SampleTable.of([
        stream(
            2.0, scheduled=1.5, end=3.4, first_byte=2.1, first_token=2.2, first_output=2.6,
            last_token=3.2, output_tokens=11, chunk_at=(2.2, 2.6, 3.2), chunk_tokens=(4, 4, 3),
        )
    ])  # fmt: skip
    found = {name: list(timing.values(table).round(9)) for name, timing in TIMINGS.items()}
    assert found == {
        "e2e": [1.7],
        "ttft": [0.7],
        "ttft_from_sent": [0.2],
        "first_output": [1.1],
        "tpot": [0.1],
        "itl": [0.4, 0.6],
        "first_byte": [0.6],
        "queued": [0.5],
    }
    assert list(definitions.itl_tokens(table)) == [4, 3]
    assert TIMINGS["itl"].own(table)[0] == pytest.approx(0.6)
    assert definitions.output_tokens_per_s(table)[0] == pytest.approx(11 / 1.7)
    assert definitions.tokens_per_chunk(table) == pytest.approx(11 / 3)


def test_l13_what_is_not_there_is_nan_or_none_and_never_zero() -> None:
    one_token = stream(first_token=0.2, last_token=0.2, output_tokens=1, chunk_at=(0.2,))
    no_usage = stream(first_token=0.2, last_token=0.9, chunk_at=(0.2, 0.9))
    whole = stream()
    table = SampleTable.of([one_token, no_usage, whole])
    assert np.isnan(definitions.tpot(table)).all()
    assert list(np.isnan(definitions.ttft(table))) == [False, False, True]
    assert list(definitions.itl(table)) == [pytest.approx(0.7)]
    figures = summary(measure(SampleTable.of([no_usage, whole]), Window(0, 2)))
    assert figures["tpot_ms"]["p50"] is None
    assert figures["output_tokens_per_s"] is None
    assert figures["tokens_per_chunk"] is None
    assert figures["goodput_rps"] is None


def test_l3_tokens_in_chunks_are_counted_and_not_the_chunks() -> None:
    at = [0.04 * n for n in range(1, 11)]
    sample = stream(first_token=at[0], last_token=at[-1], output_tokens=40, chunk_at=at)
    figures = summary(measure(SampleTable.of([sample]), Window(0, 2)))
    assert figures["itl_ms"]["p50"] == pytest.approx(40)
    assert figures["tpot_ms"]["p50"] == pytest.approx(360 / 39)
    assert figures["tokens_per_chunk"] == 4


def which(table: SampleTable, bounds: dict[str, float]) -> list[bool]:
    good = met(table, bounds)
    assert good is not None
    return [bool(g) for g in good]


def test_goodput_is_of_requests_that_met_every_bound() -> None:
    bounds = latency_bounds({"ttft_p95_ms": 300, "ttft_p50_ms": 90, "e2e_p99_ms": 900, "qps": 5})
    assert bounds == {"ttft": 0.3, "e2e": 0.9}
    fast = stream(first_token=0.1, last_token=0.8)
    late_first = stream(first_token=0.4, last_token=0.8)
    long = stream(first_token=0.1, last_token=0.95)
    failed = Sample(sent=0, end=0.1, outcome="error", error="reset")
    table = SampleTable.of([fast, late_first, long, failed])
    assert which(table, bounds) == [True, False, False, False]
    figures = summary(measure(table, Window(0, 2)), bounds)
    assert (figures["goodput_rps"], figures["goodput_share"]) == (0.5, 0.25)


def test_a_bound_that_no_request_can_have_gives_no_goodput() -> None:
    one = stream(first_token=0.2, last_token=0.2, output_tokens=1)
    several = stream(first_token=0.2, last_token=0.4, output_tokens=3)
    assert met(SampleTable.of([one]), {"tpot": 0.5}) is None
    assert which(SampleTable.of([one, several]), {"tpot": 0.05}) == [True, False]
    assert met(SampleTable.of([one]), {}) is None


def test_gates_see_values_in_the_order_in_which_they_were_due() -> None:
    first = stream(0.0, end=1.9)
    second = Sample(sent=0.1, end=0.2, outcome="error", error="reset")
    third = stream(0.2, end=0.3)
    judged = measured(measure(SampleTable.of([third, second, first]), Window(0, 2)))
    assert list(judged.timings["e2e"].round(9)) == [1.9, np.inf, 0.1]
    assert judged.failed_at is not None
    assert list(judged.failed_at) == [False, True, False]


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("ttft_p95_ms", ("ttft", "p95")),
        ("ttft_from_sent_p99.9_ms", ("ttft_from_sent", "p99.9")),
        ("first_output_mean_ms", ("first_output", "mean")),
        ("e2e_p0_ms", None),
        ("qps", None),
        ("ttft_p95", None),
    ],
)
def test_metric_names(metric: str, parts: tuple[str, str] | None) -> None:
    assert timing_of(metric) == parts
