"""The benchmark's page and tables: every type side by side, and nothing said that was not seen."""

from __future__ import annotations

import re

import pytest
from rich.console import Console
from text_bench_results import REFUSED, load, measured, result

from modelops.report.text_bench import headline, preemption_lines, share, to_html, tone
from modelops.report.text_bench_table import text_bench_table
from modelops.text_benchmark import TextBenchResult, TextBenchRow


def shown(found: TextBenchResult) -> str:
    console = Console(width=120, color_system=None)
    with console.capture() as capture:
        console.print(text_bench_table(found))
    return capture.get()


def test_the_page_shows_every_type_and_runs_nothing() -> None:
    page = to_html(result())
    assert "<script" not in page
    assert "smol&lt;lm&gt;" in page
    assert REFUSED.replace("<only>", "&lt;only&gt;") in page
    assert page.count('<figure class="plot">') == 10
    # The largest fills its bar, and half of it half; a share is one of all.
    assert page.count('width: 100.00%"') >= 8
    assert re.search(r'<span>fp8</span><div><i class="s1" style="width: 62\.50%"', page)
    assert re.search(r'<span>auto</span><div><i class="s0" style="width: 50\.\d\d%"', page)
    for text in ("93,206", "1,234.5", "98.8 %", "0.457", "13, –", "fp8 against auto"):
        assert text in page, text


def test_the_table_shows_what_the_page_does() -> None:
    text = shown(result())
    assert text.startswith("KV cache: auto, fp8 measured; int8 refused")
    assert "46,603" in text
    assert "93,206" in text
    assert "int8 refused: " + REFUSED[:40] in text
    assert re.search(r"auto +16 +110 / 220 +40\.0 / 45\.5 +205 +12 +32/32", text)
    assert re.search(r"fp8 +62\.5 % +1/2 +98\.8 % +0\.0123 / 0\.457 nats", text)
    assert re.search(r"auto again +100\.0 % +2/2 +100\.0 % +0 / 0 nats", text)
    tables = [line for line in text.splitlines() if re.match(r"(KV|beside|auto|fp8|int8) ", line)]
    assert max(len(line.rstrip()) for line in tables if ": " not in line) < 80
    assert "report: reports/r/report.html" in text


@pytest.mark.parametrize(
    ("tight", "said"),
    [
        (load(16, preemptions=12), "to 5,120 tokens, and the cache holds 3,200; it preempted 12 "),
        (load(16, preemptions=1), "it preempted once."),
        (load(16, preemptions=0), "yet it did not preempt"),
        (load(16, preemptions=None, grown_tokens=None), "does not say whether it preempted"),
        (load(16, preemptions=0, must_preempt=False), "; it did not preempt."),
    ],
)  # fmt: skip
def test_whether_it_preempted_is_said_as_it_was(tight: object, said: str) -> None:
    (line,) = preemption_lines(result(measured("auto", tight=tight)))
    assert said in line


def test_requests_that_failed_are_said() -> None:
    failed = load(8, completed=30, failed=2, failures=("2 × an error within the stream",))
    found = result(measured("auto", fits=failed))
    assert tone(found) == "warn"
    assert found.exit_code == 0
    for text in (shown(found).replace("\n", " "), to_html(found)):
        assert "auto, 8 at a time: 2 of 32 requests failed" in text
        assert "2 × an error within the stream" in text


def test_an_engine_that_failed_is_said_and_is_exit_1() -> None:
    broken = TextBenchRow(kv_cache_dtype="fp8", state="failed", why="vLLM ended\nits log")
    found = result(measured("auto"), broken)
    assert (found.exit_code, tone(found)) == (1, "bad")
    assert headline(found) == "KV cache: auto measured; fp8 failed"
    assert "fp8 failed: vLLM ended" in shown(found)
    assert "its log" in to_html(found)
    alone = result(broken)
    assert "Drift" not in to_html(alone)
    assert "at once" not in shown(alone)


def test_almost_all_is_not_all() -> None:
    assert share(1.0) == "100.0 %"
    assert share(0.9999) == "99.9 %"
    assert share(0.5) == "50.0 %"
    assert share(None) == "–"
