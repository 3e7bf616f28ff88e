"""What is shown at the terminal, at the end and meanwhile."""

from __future__ import annotations

import io

import loadtest_results
import pytest
from rich.console import Console, RenderableType

from modelops_loadtests.report import Live, longer, reason, table
from modelops_loadtests.report.facts import calibration
from modelops_loadtests.report.wording import amount, bound, headline, metric, short


def shown(what: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_has_the_verdict_each_objective_and_where_the_rest_is() -> None:
    result, _ = loadtest_results.chat()
    text = shown(table(result))
    assert text.startswith("✗ FAIL: 1 of 5 objectives did not hold")
    alone = {**result, "gates": [g for g in result["gates"] if g["verdict"] == "FAIL"]}
    assert headline(alone) == "FAIL: the one objective did not hold"
    assert "TTFT p95" in text
    assert "report: reports/chat/report.html" in text
    assert "\x1b" not in text
    assert len(text) < 6000
    assert shown(table(loadtest_results.sweep()[0])).count("the knee") == 1


def test_the_live_table_shows_what_is_known() -> None:
    live = Live(Console(file=io.StringIO(), width=100, color_system=None))
    assert "starting" in shown(live.render())
    live("looking at \x1b[31mhttp://h")
    assert "\x1b" not in shown(live.render())
    live.update({"t": 3.2, "until_s": 20.0, "phase": "measuring", "ok": 1200, "error": 3, "cut": 0})
    first = shown(live.render())
    assert "measuring, 3 of 20 s" in first
    assert "1,200 ok, 3 failed (0.249 %)" in first
    assert "TTFT" not in first
    live.update({"t": 4, "phase": "measuring", "ok": 1, "ttft_p50_ms": 90.5, "ttft_p95_ms": 1310.0})
    assert "p50 90.5 ms, p95 1.31 s" in shown(live.render())


def test_the_live_table_leaves_the_terminal_as_it_was() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with Live(console) as live:
        live.update({"t": 1, "phase": "measuring", "ok": 5})
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().rstrip().endswith(("\x1b[2K", "\x1b[?25h"))


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ttft_p95_ms", 412.0, "TTFT p95: 412 ms"),
        ("e2e_max_ms", 1312.0, "End to end slowest: 1.31 s"),
        ("error_rate", 0.0012, "Error rate: 0.12 %"),
        ("error_rate", 0.99999, "Error rate: 99.99 %"),
        ("error_rate", 1e-9, "Error rate: below 0.001 %"),
        ("error_rate", 1.0, "Error rate: 100 %"),
        ("goodput_rps", 48.25, "Goodput: 48.2/s"),
        ("itl_p99.9_ms", None, "ITL p99.9: –"),
    ],
)
def test_figures_are_told_with_their_units(name: str, value: float | None, words: str) -> None:
    assert f"{metric(name)}: {amount(name, value)}" == words


def test_why_nothing_was_calibrated_is_told() -> None:
    result, _ = loadtest_results.chat()
    whole = {**result, "calibration": None}
    assert "only streams of tokens are" in calibration(whole)
    unwanted = {**whole, "spec": {**result["spec"], "calibrate": False}}
    assert "--no-calibration" in calibration(unwanted)


def test_a_reason_says_what_was_measured_and_asked() -> None:
    result, _ = loadtest_results.chat()
    near = {"low": 380.0, "high": None, "confidence": 0.9}
    gate = {**result["gates"][0], "value": 412.0, "interval": near}
    assert reason(gate) == (
        "TTFT p95 was 412 ms (380 ms to ∞ with 90% confidence); at most 300 ms was asked"
    )
    open_yet = {**gate, "verdict": "INCONCLUSIVE", "samples_needed": 2994, "interval": None}
    assert reason(open_yet) == (
        "TTFT p95 was 412 ms; 233 samples cannot say whether it is at most 300 ms; "
        "about 2,994 would"
    )
    assert bound({**gate, "metric": "qps", "upper": False, "bound": 5.0}) == "≥ 5/s"
    missing = {**gate, "value": None, "detail": "not measured in this run"}
    assert reason(missing) == "TTFT p95: at most 300 ms was asked; not measured in this run"


def test_a_strangers_text_is_cut_and_harmless() -> None:
    assert short("a\x1b[1m\n") == "a\\x1b[1m\n"
    assert len(short("\x1b" * 10_000_000)) <= 600
    assert short("y" * 301).endswith("…")


@pytest.mark.parametrize(
    ("seconds", "typed"), [(3.2, "10s"), (73, "80s"), (119, "2m"), (121, "3m"), (600, "10m")]
)
def test_how_long_would_decide_is_something_to_type(seconds: float, typed: str) -> None:
    assert longer(seconds).endswith(f"about {typed} would decide: --duration {typed}")
