"""Throughput over time: requests and tokens by when they ended, in steps that hold some of them."""

from __future__ import annotations

import pytest

from modelops_loadtests.measure import Window, measure, throughput
from modelops_loadtests.result import _step
from modelops_loadtests.samples import Sample, SampleTable


def test_requests_and_tokens_are_counted_where_they_ended() -> None:
    ends = (0.4, 1.2, 1.8, 3.9)
    samples = SampleTable.of(
        Sample(sent=0.1, end=end, outcome="ok", output_tokens=10 * i) for i, end in enumerate(ends)
    )
    rows = throughput(measure(samples, Window(0.0, 4.0)), 2.0)
    assert [row["t"] for row in rows] == [1.0, 3.0]
    assert [row["qps"] for row in rows] == [1.5, 0.5]
    assert [row["output_tokens_per_s"] for row in rows] == [15.0, 15.0]
    assert "items_per_s" not in rows[0]


@pytest.mark.parametrize(
    ("seconds", "done", "step"),
    [(20, 10_000, 0.5), (20, 100, 2.0), (600, 100_000, 10.0), (20, 3, 5.0), (0.5, 1, 0.25)],
)
def test_a_step_holds_ten_requests_where_there_are_so_many(
    seconds: float, done: int, step: float
) -> None:
    assert _step(seconds, done) == step
