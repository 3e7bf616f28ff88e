from __future__ import annotations

from pathlib import Path

import pytest

from modelops_loadtests.definitions import e2e
from modelops_loadtests.measure import Window, errors, measure, measured, rates, summary
from modelops_loadtests.samples import Sample, SampleLog, SampleTable


def ok(sent: float, end: float, **more: object) -> Sample:
    return Sample(sent=sent, end=end, outcome="ok", status=200, items=1, **more)  # type: ignore[arg-type]


def test_the_warm_up_is_excluded_and_what_ends_late_is_not_lost() -> None:
    table = SampleTable.of([ok(0.5, 1.5), ok(1.5, 2.5), ok(2.5, 9.0)])
    measurement = measure(table, Window(1.0, 3.0))
    assert (measurement.excluded, measurement.total) == (1, 2)
    assert summary(measurement)["e2e_ms"]["max"] == pytest.approx(6500)
    # Throughput is of what ended inside, also of the request that began in the warm-up.
    assert rates(measurement)["qps"] == 1.0


def test_a_user_that_waits_all_through_the_window_is_not_forgotten() -> None:
    stalled = Sample(sent=0.5, end=31.0, outcome="error", error="timeout")
    slow, brief = ok(0.9, 3.5), [ok(at / 10, at / 10 + 0.1) for at in range(10, 30)]
    measurement = measure(SampleTable.of([*brief, slow, stalled]), Window(1.0, 3.0))
    figures = summary(measurement)
    assert (figures["ok"], figures["failed"], measurement.excluded) == (21, 1, 0)
    assert figures["e2e_ms"]["max"] == pytest.approx(2600)
    # Those of an open loop that come later tell of the same stall themselves.
    scheduled = ok(0.9, 3.5, scheduled=0.9)
    assert summary(measure(SampleTable.of([scheduled]), Window(1.0, 3.0)))["ok"] == 0


def test_l15_a_cut_request_is_counted_apart_and_is_no_success() -> None:
    table = SampleTable.of([ok(1.0, 1.1), Sample(sent=1.0, end=5.0, outcome="cut")])
    figures = summary(measure(table, Window(0, 4)))
    assert (figures["ok"], figures["failed"], figures["cut"]) == (1, 0, 1)
    assert figures["error_rate"] == 0.5


def test_l15_no_sample_gives_no_figures() -> None:
    measurement = measure(SampleTable.of([]), Window(0, 4))
    figures = summary(measurement)
    assert figures["e2e_ms"]["p95"] is None
    assert figures["qps"] is None
    assert figures["error_rate"] is None
    assert measured(measurement).per_second == {}


def test_l13_unknown_tokens_are_null_and_never_zero() -> None:
    table = SampleTable.of([ok(1.0, 1.1)])
    assert summary(measure(table, Window(0, 4)))["input_tokens_per_s"] is None


def test_l1_latency_counts_from_the_scheduled_moment() -> None:
    table = SampleTable.of([ok(2.0, 2.5, scheduled=1.0)])
    assert e2e(table)[0] == 1.5


def test_errors_are_counted_by_kind_with_the_first_example() -> None:
    def bad(end: float, kind: str) -> Sample:
        return Sample(sent=0.0, end=end, outcome="error", error=kind, detail=f"{kind} at {end}")

    table = SampleTable.of([bad(1, "reset"), bad(2, "http_503"), bad(3, "http_503")])
    assert [
        (r["kind"], r["count"], r["example"]) for r in errors(measure(table, Window(0, 9)))
    ] == [
        ("http_503", 2, "http_503 at 2"),
        ("reset", 1, "reset at 1"),
    ]


def test_samples_survive_the_file_and_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    with path.open("wb") as stream:
        log = SampleLog(stream)
        log.append(ok(0.0, 1.0, input_tokens=5))
        log.append(Sample(sent=1.0, end=2.0, outcome="error", error="reset"))
        stream.write(b'{"sent": 3.0, "en')
    table = SampleTable.read(path)
    assert len(table) == 2
    assert table["input_tokens"][0] == 5
    assert table.error == (None, "reset")
