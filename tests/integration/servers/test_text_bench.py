"""``modelops bench`` of a language model with the real vLLM: one start, and nothing left of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from modelops.environments import find_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

# Small blocks, so that short requests come to need more of them.
SMALL = (
    "--concurrency", "2", "--requests", "4", "--input-tokens", "32", "--output-tokens", "16",
    "--enforce-eager", "--engine-arg=--block-size", "--engine-arg=32",
)  # fmt: skip


def command(artifact: Path, types: str, folder: Path) -> list[str]:
    words = [sys.executable, "-m", "modelops", "bench", str(artifact), "--engine", "vllm"]
    return [*words, "--kv-cache-dtype", types, *SMALL, "-o", str(folder)]


@pytest.fixture(scope="module")
def engines(vllm_installed: Path) -> dict[str, str]:
    """The environment of a command that finds vLLM, on a CPU."""
    if find_environment("vllm", vllm_installed).platform != "cpu":
        pytest.skip("what a CPU does; tests/gpu has the rest")
    return {**os.environ, "MODELOPS_ENGINES_DIR": str(vllm_installed), "COLUMNS": "120"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("bench") / "report"


@pytest.fixture(scope="module")
def done(
    smollm2_artifact: Path, engines: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    words = command(smollm2_artifact, "auto,int8", folder)
    return subprocess.run(words, env=engines, capture_output=True, text=True, timeout=1400)


@pytest.fixture(scope="module")
def report(done: subprocess.CompletedProcess[str], folder: Path) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_what_is_possible_is_measured_and_the_rest_is_a_row_that_says_why(
    report: dict[str, Any], folder: Path
) -> None:
    auto, int8 = report["rows"]
    assert auto["state"] == "measured"
    assert int8["state"] == "refused"
    assert "TRITON_ATTN" in int8["why"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "report.html", "report.json", "vllm-auto.log",
    ]  # fmt: skip


def test_memory_is_what_was_allocated(report: dict[str, Any]) -> None:
    cache = report["rows"][0]["cache"]
    assert cache["bytes"] == report["kv_cache_bytes"]
    assert cache["bytes_per_value"] == pytest.approx(2, rel=0.01)
    # 30 layers, 3 heads of 64 values, keys and values, 2 bytes each.
    assert cache["tokens_per_gib"] == 2**30 // (30 * 3 * 64 * 2 * 2)
    assert cache["tokens"] * 30 * 3 * 64 * 2 * 2 == cache["bytes"]


def test_the_cache_that_holds_two_makes_four_preempt(report: dict[str, Any]) -> None:
    few, crowd = report["rows"][0]["fits"], report["rows"][0]["tight"]
    assert (few["concurrency"], crowd["concurrency"]) == (2, 4)
    for load in (few, crowd):
        assert (load["completed"], load["failed"]) == (4, 0), load["failures"]
        assert load["output_tokens"] == 4 * 16
        assert load["prompt_tokens"] == 32 + 8 + 24 + 16
        assert 0 < load["ttft_ms"]["p50"] <= load["ttft_ms"]["p95"] <= load["ttft_ms"]["max"]
        assert 0 < load["tpot_ms"]["p50"] <= load["tpot_ms"]["p95"]
        assert load["tokens_per_second"] == pytest.approx(4 * 16 / load["seconds"], rel=0.01)
    assert not few["must_preempt"]
    assert few["preemptions"] == 0
    assert crowd["must_preempt"]
    assert crowd["preemptions"] > 0


def test_the_same_type_does_not_drift_from_itself(report: dict[str, Any]) -> None:
    again = report["rows"][0]["repeat"]
    assert again["tokens"] == 8 * 16
    assert again["forced"]["positions"] == 4 * (8 + 16 - 1) + 4 * (32 + 16 - 1)
    # On a busy machine the keeper's own request may be in a batch, and change the last bits.
    assert again["same_tokens"] > 0.9 * again["tokens"]
    assert again["forced"]["max"] < 0.1
    assert again["same_top"] > 0.97


def test_table_and_page_show_it(
    done: subprocess.CompletedProcess[str], report: dict[str, Any], folder: Path
) -> None:
    assert done.stdout.startswith("KV cache: auto measured; int8 refused")
    per_gib = f"{report['rows'][0]['cache']['tokens_per_gib']:,}"
    page = (folder / "report.html").read_text()
    for text in (done.stdout, page):
        assert per_gib in text
        assert "TRITON_ATTN" in text
        assert "it preempted" in text
    assert "<script" not in page
    assert page.count('<figure class="plot">') == 8  # nothing was compared with another type
    assert "auto: loading weights" in done.stderr
    assert "auto: warming up" in done.stderr
    assert "APIServer" not in done.stderr


def test_where_no_type_is_possible_nothing_starts(
    smollm2_artifact: Path, engines: dict[str, str], tmp_path: Path
) -> None:
    words = command(smollm2_artifact, "int8", tmp_path / "report")
    done = subprocess.run(words, env=engines, capture_output=True, text=True, timeout=120)
    assert done.returncode == 5
    assert "kv_cache_dtype can be auto, bf16" in done.stderr
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_it_no_engine_is_left(
    smollm2_artifact: Path, engines: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    words = command(smollm2_artifact, "auto", tmp_path / "report")
    with subprocess.Popen(
        words,
        env=engines,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        family = _until_vllm_runs(running)
        running.send_signal(number)
        running.communicate(timeout=30)
    assert running.returncode == (130 if number == signal.SIGINT else -number)
    if number == signal.SIGINT:
        assert not (tmp_path / "report").exists()
    _, alive = psutil.wait_procs(family, timeout=10)
    assert not [p for p in alive if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


def _until_vllm_runs(running: subprocess.Popen[str]) -> list[psutil.Process]:
    end = time.monotonic() + 120
    while time.monotonic() < end and running.poll() is None:
        family = psutil.Process(running.pid).children(recursive=True)
        for process in family:
            try:
                if "vllm.entrypoints.openai.api_server" in process.cmdline():
                    return family
            except psutil.Error:
                continue
        time.sleep(0.1)
    raise AssertionError("vLLM was not started")
