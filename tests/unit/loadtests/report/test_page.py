"""The page: the verdict first, whole without JavaScript, and nothing of a stranger's acts in it."""

from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

import loadtest_results
import orjson
import pytest

from modelops_loadtests.report import write
from modelops_loadtests.report.page import page, script_json
from modelops_loadtests.report.plots import groups
from modelops_loadtests.report.wording import headline
from modelops_loadtests.samples import SampleTable

EVIL = '</script><img src=x onerror=alert(1)>\x1b[31m\u202e"'


class Seen(html.parser.HTMLParser):
    """What a browser makes of a page: its tags, and its text outside of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts.append(data)
        elif not self._inside:
            self.text += f" {' '.join(data.split())}"


@pytest.fixture(params=["chat", "sweep", "embeddings"])
def made(request: pytest.FixtureRequest) -> tuple[dict[str, Any], SampleTable]:
    found: tuple[dict[str, Any], SampleTable] = getattr(loadtest_results, request.param)()
    return found


def test_the_verdict_comes_first_and_every_figure_stands_in_the_text(
    made: tuple[dict[str, Any], SampleTable],
) -> None:
    result, samples = made
    seen = Seen(page(result, samples))
    order = [headline(result), "Over time", "Distributions", "Latencies", "The client itself"]
    assert sorted(order, key=seen.text.index) == order
    for reason in result["reasons"]:
        assert reason in seen.text
    assert seen.text.count("✓ PASS") >= sum(g["verdict"] == "PASS" for g in result["gates"])
    assert result["command"].split(" --")[0] in seen.text


def test_every_plot_has_a_place_and_only_numbers(
    made: tuple[dict[str, Any], SampleTable],
) -> None:
    result, samples = made
    seen = Seen(page(result, samples))
    ids = {attrs.get("id") for tag, attrs in seen.tags if attrs.get("class", "") is not None}
    drawn = [plot for _, found in groups(result, samples) for plot in found]
    assert {plot.id for plot in drawn} <= ids
    assert len({plot.id for plot in drawn}) == len(drawn)
    for plot in drawn:
        assert plot.data, plot.id
        assert b"NaN" not in orjson.dumps([plot.data, plot.layout])


def test_nothing_is_fetched(made: tuple[dict[str, Any], SampleTable]) -> None:
    for _, attrs in Seen(page(*made)).tags:
        for name in ("src", "href"):
            assert (attrs.get(name) or "data:").startswith("data:")


def test_a_chat_run_shows_tokens_and_the_server_and_a_sweep_its_knee() -> None:
    ids = {p.id for _, found in groups(*loadtest_results.chat()) for p in found}
    assert {"latency-over-time", "throughput-qps", "throughput-output_tokens_per_s"} <= ids
    assert {"ttft-histogram", "itl-histogram", "e2e-histogram", "answered-within"} <= ids
    assert {"server-requests", "server-queue", "server-batch", "server-kv-cache"} <= ids
    seen = Seen(page(*loadtest_results.sweep()))
    assert "Every objective holds up to 8 requests/s" in seen.text
    assert "The knee is at 11.3 requests/s" in seen.text


def test_what_a_server_says_is_only_shown(tmp_path: Path) -> None:
    result, samples = loadtest_results.chat(tmp_path)
    for row in result["errors"]:
        row["kind"] = row["example"] = EVIL
    result["reasons"] = [EVIL, "y" * 3_000_000]
    result["spec"]["model"] = EVIL
    result["command"] = EVIL
    result["environment"]["cpus"] = EVIL
    for row in result["server_metrics"]["series"]:
        row["model"] = EVIL
        row["title"] = EVIL
    result["server_metrics"]["series"][0]["model"] = "another"
    for gate in result["gates"]:
        gate["detail"] = EVIL
    write(result, samples, tmp_path)
    text = (tmp_path / "report.html").read_text()
    seen = Seen(text)
    assert [tag for tag, _ in seen.tags if tag == "img"] == []
    assert len(seen.scripts) >= 3
    assert "\x1b" not in text
    assert "\u202e" not in text
    plots = next(s for s in seen.scripts if "const plots" in s)
    assert "<" not in plots
    assert len(text) - max(map(len, seen.scripts)) < 700_000


def test_json_in_a_script_cannot_end_it() -> None:
    written = script_json([EVIL, "\u2028"])
    assert "<" not in written
    assert "\u2028" not in written
    assert orjson.loads(str(written).encode()) == [EVIL, "\u2028"]


def test_an_invalid_run_is_shown_in_doubt() -> None:
    result, samples = loadtest_results.chat()
    result |= {"verdict": "INVALID", "exit_code": 7, "reasons": ["the load generator ran late"]}
    result["client"]["lag_p99_ms"] = 31.0
    text = page(result, samples)
    assert "INVALID: this run may not be believed" in text
    assert re.search(r'<tr class="bad"><th scope="row">Lag of its loop, p99</th>', text)
    assert text.count(" doubt") >= 2


def test_many_requests_are_thinned_but_none_of_the_slowest() -> None:
    samples = loadtest_results.chat_samples(rate=120)
    result, _ = loadtest_results.chat()
    (latency,) = [p for _, found in groups(result, samples) for p in found if "over-time" in p.id]
    e2e = latency.data[0]
    assert len(samples) > 3500
    assert len(e2e["x"]) <= 1500
    assert "with all of the slowest" in latency.note
    ok = samples.where(samples.having("ok"))
    assert max(e2e["y"]) == pytest.approx(float((ok["last_token"] - ok.due).max()) * 1000, abs=0.01)
