from __future__ import annotations

from pathlib import Path

import pytest

from modelops.errors import InputError, UsageError
from modelops_loadtests.gates import Gate, parse


def test_latencies_and_errors_are_bounded_from_above_and_throughput_from_below() -> None:
    assert parse(["e2e_p95_ms=300", "error_rate=0.1%", "qps = 50", "itl_p99.9_ms=1e3"]) == (
        Gate("e2e_p95_ms", 300, True),
        Gate("error_rate", 0.001, True),
        Gate("qps", 50, False),
        Gate("itl_p99.9_ms", 1000, True),
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


@pytest.mark.parametrize(
    ("written", "nearest"),
    [("e2e_p95=300", "e2e_p95_ms"), ("errorrate=0", "error_rate"), ("goodput=3", "goodput_rps")],
)
def test_an_unknown_metric_names_the_nearest(written: str, nearest: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse([written])
    assert f"did you mean {nearest}?" in str(caught.value.hint)


def test_a_file_says_the_same_and_may_be_added_to(tmp_path: Path) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text("slo:\n  ttft_p95_ms: 300\n  error_rate: 0.1%\n")
    assert parse([str(path), "qps=5"]) == parse(["ttft_p95_ms=300", "error_rate=0.001", "qps=5"])
    with pytest.raises(UsageError, match="given twice"):
        parse([str(path), "error_rate=0"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("slo:\n  e2e_p95_ms: [3]\n", "line 2"),
        ("slo:\n  qps: true\n", "no number"),
        ("qps: 3\n", "holds no objectives"),
        ("slo: {qps: 1, qps: 2}\n", "qps"),
        ("- qps\n", "slo.yaml"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "slo.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        parse([str(path)])


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        parse([str(tmp_path / "slo.yml")])
