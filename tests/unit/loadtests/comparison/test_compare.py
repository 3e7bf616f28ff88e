from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import record
from rich.console import Console

from modelops.api.compare import CompareRequest, compare, table
from modelops.errors import UsageError
from modelops_loadtests.comparison import wording


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    record(root / "before", seed=1)
    record(root / "same", seed=2)
    record(root / "slower", seed=3, scale=1.3, failed=0.03)
    record(root / "invalid", seed=4, verdict="INVALID")
    for i in range(3):
        record(root / f"a{i}", seed=10 + i, scale=1 + 0.02 * i, started=4 * i)
        record(root / f"b{i}", seed=20 + i, scale=1.2 + 0.02 * i, started=4 * i + 2)
    return root


def compared(folder: Path, a: str, b: str, *limits: str, **more: Any) -> dict[str, Any]:
    request = CompareRequest(
        a=tuple(folder / name for name in a.split(",")),
        b=tuple(folder / name for name in b.split(",")),
        max_regression=limits,
        output=folder / "out",
        **more,
    )
    result = compare(request)
    assert result.exit_code == result.report["exit_code"]
    return result.report


def shown(report: dict[str, Any]) -> dict[str, str]:
    return {row["metric"]: row["shown"] for row in report["rows"]}


def test_of_equal_servers_no_difference_is_shown(folder: Path) -> None:
    report = compared(folder, "before", "same")
    assert (report["verdict"], report["exit_code"]) == ("MEASURED", 0)
    assert set(shown(report).values()) == {"none"}
    row = next(r for r in report["rows"] if r["metric"] == "e2e_p95_ms")
    assert row["ratio"]["low"] < 1 < row["ratio"]["high"]
    assert row["difference"]["value"] == pytest.approx(row["b"] - row["a"])
    assert "No difference shown" in (folder / "out" / "compare.html").read_text()


def test_a_slower_server_that_fails_more_is_shown_as_such(folder: Path) -> None:
    report = compared(folder, "before", "slower", "p95=10%", "error_rate=1%")
    said = shown(report)
    assert {said[m] for m in ("e2e_p50_ms", "e2e_p95_ms", "first_byte_p50_ms", "qps")} == {"worse"}
    assert said["error_rate"] == "worse"
    assert (report["verdict"], report["exit_code"]) == ("FAIL", 6)
    row = next(r for r in report["rows"] if r["metric"] == "e2e_p50_ms")
    assert 1.25 < row["ratio"]["low"] < row["ratio"]["value"] < row["ratio"]["high"] < 1.45


def test_a_limit_closer_than_the_runs_can_tell_is_undecided(folder: Path) -> None:
    loose = compared(folder, "before", "same", "p50=10%")
    assert (loose["verdict"], loose["exit_code"]) == ("PASS", 0)
    closest = max(loose["gates"][0]["value"] - 1, 0)
    report = compared(folder, "before", "same", f"p50={closest:f}")
    if closest > 0:
        assert (report["verdict"], report["exit_code"]) == ("INCONCLUSIVE", 7)
    assert compared(folder, "same", "before", "p99=0.5%")["exit_code"] == 7


def test_an_invalid_run_is_said_loudly_unless_it_is_allowed(folder: Path) -> None:
    report = compared(folder, "before", "invalid")
    assert (report["verdict"], report["exit_code"]) == ("INVALID", 7)
    assert report["reasons"] == ["invalid is INVALID: the load generator ran late"]
    allowed = compared(folder, "before", "invalid", allow_invalid=True)
    assert (allowed["verdict"], allowed["exit_code"]) == ("MEASURED", 0)
    assert allowed["reasons"] == report["reasons"]


def test_runs_that_took_turns_are_compared_in_pairs(folder: Path) -> None:
    report = compared(folder, "a0,a1,a2", "b0,b1,b2", "p50=30%")
    assert (report["method"], report["warnings"]) == ("paired", [])
    row = next(r for r in report["rows"] if r["metric"] == "e2e_p50_ms")
    assert row["shown"] == "worse"
    assert row["ratio"]["low"] < 1.2 < row["ratio"]["high"]
    assert report["verdict"] == "PASS"
    apart = compared(folder, "a0,a1", "b1,b2")
    assert apart["method"] == "sets"
    assert "turns" in apart["warnings"][0]
    with pytest.raises(UsageError, match="1 against 2"):
        compared(folder, "a0", "b0,b1")


def test_what_else_differs_is_named(folder: Path, tmp_path: Path) -> None:
    record(tmp_path / "other", seed=5, model="n", rate=80.0)
    report = compared(folder, "before", str(tmp_path / "other"))
    assert report["warnings"] == [
        "before and other differ in model m and n",
        "before and other differ in rate 40.0 and 80.0",
    ]


def test_the_terminal_shows_values_change_and_what_is_shown(folder: Path) -> None:
    request = CompareRequest(a=(folder / "before",), b=(folder / "slower",), output=folder / "out")
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table(compare(request)))
    text = console.export_text()
    assert "B is worse in" in text
    line = next(x for x in text.splitlines() if x.startswith("End to end p95"))
    assert line.rstrip().endswith("B worse")
    assert "failed" in next(x for x in text.splitlines() if x.startswith("End to end p99"))


def test_a_narrow_terminal_cuts_no_name_and_no_unit(folder: Path) -> None:
    request = CompareRequest(a=(folder / "before",), b=(folder / "slower",), output=folder / "out")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(table(compare(request)))
    lines = console.export_text().splitlines()
    line = next(x for x in lines if x.startswith("End to end p95"))
    assert line.count(" ms") == 2
    assert line.rstrip().endswith("B worse")


def test_an_interval_that_says_nothing_is_said_to_be_unknown() -> None:
    found = {"metric": "ttft_p50_ms", "a": 1.0, "b": 1.0, "shown": "none", "difference": None}
    ratio = {"value": 1.0, "low": 1e-9, "high": 2e10}
    assert wording.row({**found, "ratio": ratio}).between == "not known"
    assert wording.row({**found, "ratio": {**ratio, "low": 0.8}}).between.startswith("−20.0 to")


def test_a_run_that_is_named_twice_would_seem_not_to_vary(folder: Path) -> None:
    with pytest.raises(UsageError, match="named twice"):
        compare(
            CompareRequest(
                a=(folder / "a0", folder / "a0"), b=(folder / "b0", folder / "b1"), output=folder
            )
        )
