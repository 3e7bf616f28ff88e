"""The summary for pipelines."""

from __future__ import annotations

import loadtest_results

from modelops_loadtests.report.markdown import markdown

EVIL = "a|b `c` </td><script> @team #1 [x](http://y) **z**\n# h\n| q |\x1b[2J"


def test_it_leads_with_the_verdict_and_has_each_objective() -> None:
    result, _ = loadtest_results.chat()
    text = markdown(result)
    assert text.startswith("## ❌ FAIL")
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith(("| ✅", "| ❌", "| ⚠️"))]
    assert len(rows) == len(result["gates"])
    assert "| 233 of 2,994 |" in next(row for row in rows if "INCONCLUSIVE" in row)
    assert "This client adds at most 0.8 ms at p99" in text
    assert "reports/chat/report.html" in text


def test_a_sweep_says_what_load_holds() -> None:
    text = markdown(loadtest_results.sweep()[0])
    assert (
        "Every objective holds up to **8 requests/s**. The knee is at **11.3 requests/s**." in text
    )


def test_nothing_that_a_server_says_is_markup() -> None:
    result, _ = loadtest_results.chat()
    plain = markdown(result)
    for row in result["errors"]:
        row["kind"] = row["example"] = EVIL
    result["errors"][1]["example"] = EVIL * 100_000
    result["reasons"] = [EVIL for _ in result["reasons"]]
    result["spec"]["model"] = EVIL
    text = markdown(result)
    assert len(text) < 20_000
    assert text.count("\n") == plain.count("\n")
    outside = "".join(piece for i, piece in enumerate(text.split("`")) if i % 2 == 0)
    for mark in ("<", "@", "[x]", "**z**", "\x1b"):
        assert mark not in outside
    columns = {line.count("|") for line in text.splitlines() if line.startswith("| `")}
    assert columns == {4}
