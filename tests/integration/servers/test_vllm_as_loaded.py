"""Load tests of the real vLLM behind the gateway: tokens as it counts them, and its own metrics."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from running_server import Server

from modelops_loadtests.samples import SampleTable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

LOADTESTS = Path(__file__).parents[3] / "loadtests"
INPUT, OUTPUT = 48, 12


def loadtest(gateway: Server, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Run the command; return its exit code and its report."""
    command = [sys.executable, "-m", "modelops", "loadtest", gateway.url, "--json", "-o", folder]
    ended = subprocess.run(
        [*map(str, command), "--warmup", "1s", "--timeout", "60s", "--no-calibration", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.stdout, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    return ended.returncode, report


def test_chats_are_measured_in_tokens_as_vllm_counts_them(gateway: Server, tmp_path: Path) -> None:
    code, report = loadtest(
        gateway,
        tmp_path,
        *("--scenario", "chat", "--model", "smollm2", "--users", "2", "--duration", "8s"),
        *("--input-tokens", str(INPUT), "--output-tokens", str(OUTPUT)),
        *("--slo", "error_rate=0", "--slo", "ttft_p50_ms=60000"),
    )
    summary = report["summary"]
    assert report["errors"] == []
    assert summary["ok"] >= 2
    told = report["client"]["tokens"]
    assert (told["input"]["asked"], told["input"]["counted"]) == (INPUT, INPUT)
    assert (told["output"]["asked"], told["output"]["counted"]) == (OUTPUT, OUTPUT)
    assert summary["tokens_per_chunk"] == pytest.approx(1, abs=0.2)
    assert 0 < summary["ttft_ms"]["p50"] < summary["e2e_ms"]["p50"]
    assert summary["tpot_ms"]["p50"] * (OUTPUT - 1) < summary["e2e_ms"]["p50"]
    assert report["client"]["stamps"] == "kernel"
    # Both engine and client want the same two cores: the client may have been late, and says so.
    assert report["verdict"] in ("PASS", "INCONCLUSIVE", "INVALID"), report["reasons"]
    assert code == {"PASS": 0}.get(report["verdict"], 7)
    assert report["gates"][0]["verdict"] == "PASS"
    names = json.dumps(report["server_metrics"])
    assert "kv_cache" in names
    assert (tmp_path / "report.html").stat().st_size > 1_000_000


def test_a_mix_of_chats_and_embeddings_in_an_open_loop(gateway: Server, tmp_path: Path) -> None:
    _, report = loadtest(
        gateway,
        tmp_path,
        *("--scenario", "chat=1,embeddings=3", "--rate", "4", "--duration", "5s", "--seed", "1"),
        *("--model", "chat=smollm2", "--model", "embeddings=minilm", "--output-tokens", "4"),
    )
    assert report["errors"] == []
    assert report["client"]["rate"]["scheduled"] == pytest.approx(4, rel=0.7)
    samples = SampleTable.read_parquet(tmp_path / "samples.parquet")
    assert set(samples.scenario) == {"chat", "embeddings"}
    chats = np.array([name == "chat" for name in samples.scenario])
    assert (samples["output_tokens"][chats] == 4).all()
    assert np.isnan(samples["output_tokens"][~chats]).all()
    assert (samples["input_tokens"] > 0).all()


def test_plain_locust_shows_first_tokens_apart_from_requests(
    gateway: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "locust", "-f", LOADTESTS / "llm.py", "--host", gateway.url]
    command += ["--headless", "-u", "1", "-t", "5s", "--stop-timeout", "60", "--only-summary"]
    command += ["--model", "chat", "--input-tokens", str(INPUT), "--output-tokens", "4"]
    ended = subprocess.run(
        [*map(str, command), "--csv", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    rows = [line.split(",") for line in (tmp_path / "run_stats.csv").read_text().splitlines()[1:]]
    counts = {row[1]: int(row[2]) for row in rows}
    requests = counts.pop("Aggregated")
    assert requests >= 1
    assert {"TTFT", "TPOT"} <= counts.keys()
    assert requests == sum(n for name, n in counts.items() if name not in ("TTFT", "TPOT"))
