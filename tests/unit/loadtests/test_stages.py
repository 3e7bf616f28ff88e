from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from modelops.errors import InputError, UsageError
from modelops_loadtests.client_health import merged
from modelops_loadtests.following import Following
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.stages import looks, resolved


def spec(**options: Any) -> RunSpec:
    return RunSpec.checked({"url": "127.0.0.1:1", "scenario": "chat", **options})


@pytest.mark.parametrize(("longest", "times"), [(None, 1), (20.0, 1), (30.0, 2), (200.0, 7)])
def test_each_time_that_a_run_may_be_judged_is_counted(longest: float | None, times: int) -> None:
    # Each extension makes the window at least half as long again: 20, 30, 45, … 200.
    assert looks(spec(max_duration_s=longest)) == times


def test_a_trace_gives_the_run_its_length_and_its_spans_of_tokens(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"at": 0, "input_tokens": 9}\n{"at": 5, "input_tokens": 4}\n{"at": 8}\n')
    whole = resolved(spec(trace=trace, warmup_s=1.0))
    assert whole.duration_s == pytest.approx(7, abs=0.01)
    assert (str(whole.input_tokens), whole.output_tokens) == ("4..9", None)
    assert resolved(spec(trace=trace, warmup_s=1.0, duration_s=3.0)).duration_s == 3
    unasked = resolved(spec(trace=trace))
    assert (unasked.warmup_s, round(unasked.duration_s)) == (0, 8)
    with pytest.raises(InputError, match="are the warm-up"):
        resolved(spec(trace=trace, warmup_s=9.0))


def test_a_load_that_cannot_be_planned_is_refused_before_a_process_starts() -> None:
    with pytest.raises(UsageError, match="can be planned"):
        resolved(spec(sweep="rate=1..1000000", duration_s=60.0))


def test_the_health_of_several_processes_is_that_of_the_worst() -> None:
    one = {"process": 0, "ticks": 90, "cpu_share": 0.3, "lag_p99_ms": 9.0, "dispatched": 5}
    two = {"process": 1, "ticks": 80, "cpu_share": 0.7, "lag_p99_ms": None, "dispatched": 4}
    rows = [{"t": 0.51, "cpu": 0.2, "lag_ms": 7.0}], [{"t": 0.49, "cpu": 0.6, "lag_ms": 1.0}]
    found = merged([{**one, "series": rows[0]}, {**two, "series": rows[1]}])
    assert (found["ticks"], found["cpu_share"], found["lag_p99_ms"]) == (80, 0.7, 9.0)
    assert found["series"] == [{"t": 0.51, "cpu": 0.6, "lag_ms": 7.0}]
    assert [row["process"] for row in found["processes"]] == [0, 1]
    assert merged([])["processes"] == []


def test_progress_of_several_processes_is_summed_up_and_figures_are_of_lately() -> None:
    following = Following()
    for t, ok in ((1.0, 4), (9.0, 14)):
        for process, first in ((0, 100.0), (1, 300.0)):
            told = {"t": t, "ok": ok, "error": 1, "cut": 0, "in_flight": 2, "phase": "measuring"}
            ttft = [first] if t > 5 else [9000.0]
            following.hear(
                process, {**told, "tokens": 50, "lag_ms": 1.0, "ttft_ms": ttft, "e2e_ms": []}
            )
    stage = Stage(0, "rate", 5.0, 0.0, 0.0, 1.0, 21.0, 21.0)
    now = following.figures(stage, 21.0)
    assert (now["ok"], now["error"], now["in_flight"], now["asked"]) == (28, 2, 4, 5)
    assert now["ttft_p50_ms"] == 200  # what was slow eight seconds ago is over
    assert "e2e_p50_ms" not in now
    assert following.phrase(stage, 21.0).startswith("measuring at rate 5, 9.0 of 21 s: 28 ok")
