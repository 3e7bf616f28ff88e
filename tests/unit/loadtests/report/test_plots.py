"""Plots hold for whatever a run leaves: one request, none that succeeded, times of all sizes."""

from __future__ import annotations

import loadtest_results
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops_loadtests.measure import Window, measure, summary
from modelops_loadtests.report.page import page
from modelops_loadtests.report.plots import groups
from modelops_loadtests.report.plots.plot import ms_axis, phases, time_axis
from modelops_loadtests.samples import Sample, SampleTable

STREAM = {"first_token": 1.2, "last_token": 1.3, "output_tokens": 2, "chunk_at": (1.2, 1.3)}


@pytest.mark.parametrize(
    "samples",
    [
        [],
        [Sample(1.0, 1.5, "error", error="timeout", detail="")],
        [Sample(1.0, 1.5, "cut"), Sample(1.1, 1.5, "cut", first_token=1.3)],
        [Sample(1.0, 1.5, "ok")],
        [Sample(1.0, 1.5, "ok", **STREAM)],
        [Sample(1.0, 1.0, "ok"), Sample(1.0, 1.0, "ok")],
        [Sample(1.0, 1.3, "ok", **{**STREAM, "chunk_at": (1.2, 1.2)})] * 3,
        [Sample(1.0, 1.0 + 10.0**k, "ok") for k in range(-6, 4)],
    ],
    ids=["none", "failed", "cut", "one", "stream", "instant", "together", "wide"],
)
def test_a_page_is_made_of_any_run(samples: list[Sample]) -> None:
    table = SampleTable.of(samples)
    result, _ = loadtest_results.chat()
    figures = summary(measure(table, Window(0.0, 5.0)))
    figures["error_rate"] = None if not samples else figures["error_rate"]
    result |= {"summary": figures, "throughput": [], "intervals": {}}
    result["window"] |= {"start_s": 0.0, "end_s": 5.0, "seconds": 5.0}
    assert "Load test of smollm2" in page(result, table)
    for _, plots in groups(result, table):
        for plot in plots:
            assert b"null" not in orjson.dumps(plot.layout), plot.id


@given(
    st.lists(st.floats(1e-3, 1e7), min_size=1, max_size=20)
    | st.builds(lambda v, share: [v, v * (1 + share)], st.floats(1e-3, 1e7), st.floats(0, 1e-3)),
    st.booleans(),
    st.sampled_from(["tozero", "normal"]),
)
def test_marks_of_an_axis_are_few_and_told_apart(values: list[float], log: bool, mode: str) -> None:
    axis = ms_axis(np.array(values), log=log, rangemode=mode)
    assert len(set(axis["ticktext"])) == len(axis["ticktext"])
    if log:
        assert axis["tickvals"][0] <= min(values)
    else:
        assert 2 <= len(axis["tickvals"]) <= 9
    assert all(text.endswith(("s", "min")) for text in axis["ticktext"])


def test_the_time_axis_spans_the_run_and_shades_what_was_not_measured() -> None:
    chat, _ = loadtest_results.chat()
    assert time_axis(chat)["range"][1] >= loadtest_results.END + loadtest_results.DRAINED
    bands = [(s["x0"], s["x1"]) for s in phases(chat) if s["type"] == "rect"]
    assert bands[0] == (0.0, loadtest_results.WARMUP)
    assert bands[1][0] == loadtest_results.END
    (line,) = [s for s in phases(chat) if s["type"] == "line"]
    assert line["x0"] == 24.0
    sweep, _ = loadtest_results.sweep()
    bands = [(s["x0"], s["x1"]) for s in phases(sweep) if s["type"] == "rect"]
    assert bands[:2] == [(0.0, 1.0), (5.0, 6.0)]
