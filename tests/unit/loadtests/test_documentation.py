"""docs/load-testing.md and the examples say what the code does."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import blocks
from typer.testing import CliRunner

from modelops_loadtests import gates, validity
from modelops_loadtests.definitions import LOWER_BOUNDED, TIMINGS
from modelops_loadtests.gates.percentiles import ALPHA, needed
from modelops_loadtests.result import EXIT_CODES

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "load-testing.md"
TEXT = PAGE.read_text(encoding="utf-8")


def section(title: str) -> str:
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def known_options() -> set[str]:
    from modelops.cli.main import app

    found: set[str] = set()
    for command in ("loadtest", "serve"):
        help_text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).stdout
        found |= set(re.findall(r"--[a-z][a-z-]+", help_text))
    return found


def test_every_option_is_one(known_options: set[str]) -> None:
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - {"--host"}
    assert mentioned - known_options == set()
    assert len(mentioned) > 25


def test_every_timing_and_rate_is_defined() -> None:
    told = section("What each figure means")
    assert set(re.findall(r"^\| `(\w+)` \|", told, re.MULTILINE)) == set(TIMINGS)
    for rate in LOWER_BOUNDED:
        assert f"`{rate}`" in told


def test_the_verdicts_and_their_exit_codes_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| ([A-Z]+) \| (\d) \|", TEXT, re.MULTILINE)
    assert {name: int(code) for name, code in rows} == EXIT_CODES


def test_the_bounds_of_validity_are_those_of_the_code() -> None:
    told = section("When a run is INVALID")
    limits = validity.bounds({"stamps": "kernel"}, {})
    late = validity.bounds({"stamps": "user", "lag_p99_ms": 2 * validity.LATE_MS}, {})
    for words in (
        f"{limits['cpu_share']:.0%}".replace("%", " %"),
        f"{limits['lag_p99_ms']:g} ms or a quarter",
        f"{late['lag_p99_ms']:g} ms or a tenth",
        f"{limits['send_lag_p99_ms']:g} ms or a twentieth",
        f"{limits['queued_p99_ms']:g} ms or a tenth",
        f"within {limits['rate_share'] * 100:g} %",
        f"{limits['coalesced_share'] * 100:g} %; {late['coalesced_share'] * 100:g} % where",
        f"within {limits['tokens_share'] * 100:g} %",
    ):
        assert words in told


def test_how_many_samples_a_percentile_needs() -> None:
    told = section("How an objective is decided")
    assert f"{needed(95)} for a p95 and {needed(99)} for a p99" in told
    assert f"at most\n{ALPHA * 100:g} % of runs" in told


def test_the_example_file_holds_objectives() -> None:
    found = gates.parse([str(ROOT / "examples" / "objectives.yaml")])
    assert {gate.metric for gate in found} >= {"ttft_p95_ms", "error_rate", "goodput_rps"}


def test_the_job_for_a_pipeline_gates_and_keeps_the_report(known_options: set[str]) -> None:
    (job,) = [b.text for b in blocks(PAGE) if b.language == "yaml"]
    steps: list[dict[str, Any]] = yaml.safe_load(job)["jobs"]["load-test"]["steps"]
    (words,) = [
        shlex.split(step["run"]) for step in steps if "modelops loadtest" in step.get("run", "")
    ]
    assert {w for w in words if w.startswith("--")} <= known_options
    gates.parse([b for a, b in pairwise(words) if a == "--slo"])
    folder = words[words.index("-o") + 1]
    kept = [step for step in steps if step.get("if") == "always()"]
    assert any(f"{folder}/report.md" in step.get("run", "") for step in kept)
    assert any(step.get("with", {}).get("path") == folder for step in kept)
