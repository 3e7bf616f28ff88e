from __future__ import annotations

import numpy as np

from modelops_loadtests.gates.series import BLOCKS, blocks_per_second, timing_series
from modelops_loadtests.measure import Window, measure, measured
from modelops_loadtests.samples import Sample, SampleTable


def reply(sent: float, chunks: list[float], scenario: str | None = None) -> Sample:
    at = [sent + c for c in chunks]
    return Sample(
        sent=sent,
        end=sent + 1,
        outcome="ok",
        first_token=at[0] if at else None,
        last_token=at[-1] if at else None,
        output_tokens=3,
        chunk_at=at,
        scenario=scenario,
    )


def failure(sent: float, scenario: str | None = None) -> Sample:
    return Sample(sent=sent, end=sent + 1, outcome="error", error="reset", scenario=scenario)


def test_a_failed_request_stands_for_as_many_gaps_as_others_have_where_it_was_due() -> None:
    table = SampleTable.of([reply(0, [0.1, 0.2, 0.4]), failure(1), reply(2, [0.1, 0.4, 0.8])])
    gaps = timing_series(table)["itl"]
    assert list(gaps.round(9)) == [0.1, 0.2, np.inf, np.inf, 0.3, 0.4]


def test_a_failure_of_a_scenario_without_tokens_says_nothing_of_tokens() -> None:
    table = SampleTable.of(
        [
            reply(0, [0.1, 0.2], "chat"),
            reply(1, [], "embeddings"),
            failure(2, "embeddings"),
            failure(3, "chat"),
            failure(4, "completion"),
        ]
    )
    series = timing_series(table)
    assert list(series["ttft"].round(9)) == [0.1, np.inf, np.inf]
    assert len(series["e2e"]) == 5


def test_throughputs_are_those_of_the_window_in_blocks() -> None:
    table = SampleTable.of([reply(s / 10, [0.1, 0.2]) for s in range(100)])
    judged = measured(measure(table, Window(2, 6)), {"ttft": 0.15})
    assert set(judged.per_second) == {"qps", "output_tokens_per_s", "goodput_rps"}
    assert {len(v) for v in judged.per_second.values()} == {BLOCKS}
    assert judged.per_second["qps"].mean() == 10
    assert judged.per_second["goodput_rps"].mean() == 10
    assert judged.per_second["output_tokens_per_s"].mean() == 30
    assert judged.met_at is not None
    assert judged.met_at.all()


def test_blocks_hold_what_ended_in_them() -> None:
    found = blocks_per_second(np.array([0.0, 1.0, 3.9]), np.array([1.0, 2.0, 4.0]), 0.0, 4.0)
    assert list(np.flatnonzero(found)) == [0, 100, 390]
    assert found[390] == 4 * BLOCKS / 4
