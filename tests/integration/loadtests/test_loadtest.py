"""The whole load test against a server whose clock is known."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from modelops.errors import InputError, MeasurementError, ModelNotFoundError, UsageError
from modelops_loadtests.runner import run
from modelops_loadtests.samples import SampleTable

pytestmark = pytest.mark.slow
Upstream = Callable[..., str]
LOADTESTS = Path(__file__).parents[3] / "loadtests"


def measure(url: str, folder: Path, **options: Any) -> dict[str, Any]:
    base = {"url": url, "scenario": "embeddings", "users": 4, "duration_s": 1.2, "warmup_s": 0.3}
    return run({**base, "output": folder / "report", **options})


def arrivals(url: str) -> list[tuple[float, float]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"))
    connection.request("GET", "/arrivals")
    found: list[tuple[float, float]] = json.loads(connection.getresponse().read())
    connection.close()
    return found


def test_a_50_ms_server_is_measured_as_its_own_clock_has_it(
    upstream: Upstream, tmp_path: Path
) -> None:
    url = upstream(ttft_ms=50)
    result = measure(url, tmp_path, slo=("e2e_p50_ms=80", "error_rate=0", "qps=20"))
    assert (result["verdict"], result["exit_code"]) == ("PASS", 0)
    served = [(end - start) * 1000 for start, end in arrivals(url)]
    # Beyond the server's own stamps lie the loopback and both event loops.
    assert result["summary"]["e2e_ms"]["p50"] == pytest.approx(statistics.median(served), abs=5)
    assert result["summary"]["e2e_ms"]["p50"] >= 50
    samples = SampleTable.read_parquet(tmp_path / "report" / "samples.parquet")
    assert len(samples) == len(served)
    assert result["window"]["warmup_requests_excluded"] > 0
    assert (tmp_path / "report" / "report.html").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("nan-bare", "not_finite"), ("cut-body", "closed")],
)
def test_l2_a_run_of_failures_never_passes(
    upstream: Upstream, tmp_path: Path, fault: str, kind: str
) -> None:
    result = measure(upstream(fault), tmp_path, duration_s=0.5, warmup_s=0, users=2)
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    assert [row["kind"] for row in result["errors"]] == [kind]
    assert result["summary"]["e2e_ms"]["p95"] is None
    assert (tmp_path / "report" / "report.html").exists()


def test_an_error_rate_of_one_is_measured_and_fails_its_gate(
    upstream: Upstream, tmp_path: Path
) -> None:
    result = measure(upstream("status"), tmp_path, duration_s=0.5, slo=("error_rate=0.5",))
    assert (result["verdict"], result["exit_code"]) == ("FAIL", 6)


def test_l13_a_missing_metric_fails(upstream: Upstream, tmp_path: Path) -> None:
    result = measure(
        upstream(usage="never"), tmp_path, duration_s=0.5, slo=("input_tokens_per_s=1",)
    )
    assert [gate["verdict"] for gate in result["gates"]] == ["FAIL"]
    assert result["summary"]["input_tokens_per_s"] is None


def test_l14_nine_samples_and_an_outlier_are_inconclusive(
    upstream: Upstream, tmp_path: Path
) -> None:
    url = upstream(ttft_ms=30, outlier_every=9)
    result = measure(url, tmp_path, users=1, duration_s=0.5, warmup_s=0, slo=("e2e_p95_ms=200",))
    (gate,) = result["gates"]
    assert (gate["verdict"], gate["samples_needed"]) == ("INCONCLUSIVE", 59)
    # INVALID where this machine was busy: either way nothing can be said, and it says so.
    assert result["exit_code"] == 7
    if result["verdict"] == "INCONCLUSIVE":
        assert result["reasons"][-1].endswith("would decide: --duration 10s")


def test_l15_replies_slower_than_the_run_are_waited_for(upstream: Upstream, tmp_path: Path) -> None:
    url = upstream(ttft_ms=1500)
    result = measure(url, tmp_path, duration_s=1, warmup_s=0)
    assert result["summary"]["ok"] == 4
    assert result["summary"]["cut"] == 0
    assert result["window"]["drained_after_s"] == pytest.approx(0.5, abs=0.3)


def test_l15_beyond_the_bound_they_are_cut_and_said_so(upstream: Upstream, tmp_path: Path) -> None:
    url = upstream(ttft_ms=5000)
    result = measure(url, tmp_path, duration_s=0.5, warmup_s=0, drain_s=0.2, slo=("qps=0",))
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    assert result["summary"]["cut"] == 4


def test_nan_in_binary_tensors_is_a_failure(upstream: Upstream, tmp_path: Path) -> None:
    result = measure(
        upstream("nan"), tmp_path, scenario="tensors", encoding="binary", duration_s=0.5
    )
    assert [row["kind"] for row in result["errors"]] == ["not_finite"]


def test_a_server_that_dies_in_the_middle_fails_the_gates_and_is_not_hammered(
    upstream: Upstream, tmp_path: Path
) -> None:
    slo = ("e2e_p95_ms=5000", "error_rate=0")
    url = upstream(ttft_ms=10, dies_after=60)
    result = measure(url, tmp_path, warmup_s=0, slo=slo)
    assert (result["verdict"], result["exit_code"]) == ("FAIL", 6)
    # All failures are one event: that it would be a twentieth of any other run is not shown.
    assert [gate["verdict"] for gate in result["gates"]] == ["INCONCLUSIVE", "FAIL"]
    kinds = {row["kind"]: row["count"] for row in result["errors"]}
    assert kinds.keys() <= {"refused", "reset", "closed"}
    # Each of 4 users tries again no sooner than after 0.1 s.
    assert 4 <= kinds["refused"] <= 4 * 16
    assert 50 <= result["summary"]["ok"] <= 60


BUSY = """
import time
from modelops_loadtests.scenarios.embeddings import EmbeddingsScenario

class Busy(EmbeddingsScenario):
    def request(self, rng):
        until = time.perf_counter() + 0.04
        while time.perf_counter() < until:
            pass
        return super().request(rng)
"""


def test_l6_a_generator_short_of_cpu_makes_the_run_invalid(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scenario that takes the CPU joins by an entry point, as a third party's would."""
    (tmp_path / "busy_scenario.py").write_text(BUSY)
    info = tmp_path / "busy_scenario-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: busy-scenario\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[modelops.scenarios]\nbusy = busy_scenario:Busy\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = measure(upstream(), tmp_path, scenario="busy", slo=("qps=1",))
    assert [gate["verdict"] for gate in result["gates"]] == ["PASS"]
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    assert result["client"]["lag_p99_ms"] > result["bounds"]["lag_p99_ms"]
    assert any("ran late" in reason for reason in result["reasons"])


def test_nothing_there_is_nothing_measured(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(MeasurementError, match="cannot be reached"):
            measure(f"http://127.0.0.1:{held.getsockname()[1]}", tmp_path)


def test_the_model_and_the_key_are_looked_at_first(upstream: Upstream, tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError) as caught:
        measure(upstream(), tmp_path, model="fakee")
    assert "did you mean 'fake'" in str(caught.value.hint)
    with pytest.raises(UsageError, match="which one"):
        measure(upstream(models=["a", "b"]), tmp_path)
    locked = upstream(key="s3cret-key")
    with pytest.raises(InputError, match="refused"):
        measure(locked, tmp_path)
    result = measure(locked, tmp_path, api_key="s3cret-key", duration_s=0.5)
    assert result["summary"]["failed"] == 0
    for file in (tmp_path / "report").iterdir():
        assert b"s3cret-key" not in file.read_bytes(), file.name


def start(url: str, folder: Path, *more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "modelops", "loadtest", url, "--scenario", "embeddings"),
            *("--users", "2", "--warmup", "200ms", "-o", str(folder), *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("slo", "code"),
    [("qps=1", 0), ("qps=1e9", 6)],
)
def test_the_command_prints_one_json_and_ends_with_the_verdicts_code(
    upstream: Upstream, tmp_path: Path, slo: str, code: int
) -> None:
    process = start(upstream(), tmp_path, "--duration", "1500ms", "--slo", slo, "--json")
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    printed = json.loads(out)
    assert printed["exit_code"] == code
    assert all(Path(printed["files"][name]).exists() for name in ("report", "json", "samples"))
    assert json.loads((tmp_path / "report.json").read_text()) == printed
    assert "Warning" not in err


def test_the_command_with_an_unknown_model(upstream: Upstream, tmp_path: Path) -> None:
    process = start(upstream(), tmp_path, "--model", "none", "--json")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["error"]["type"]) == (3, "ModelNotFoundError")


def test_the_command_without_a_server_or_with_an_unknown_metric(tmp_path: Path) -> None:
    process = start("http://127.0.0.1:9", tmp_path, "--json")
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, json.loads(out)["error"]["type"]) == (7, "MeasurementError")
    process = start("http://127.0.0.1:9", tmp_path, "--slo", "e2e_p95=3")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "e2e_p95_ms" in err


def test_a_cancelled_run_keeps_what_was_measured_and_leaves_no_process(
    upstream: Upstream, tmp_path: Path
) -> None:
    process = start(upstream(), tmp_path, "--duration", "60s", "--processes", "2", "--json")
    assert process.stderr is not None
    for line in process.stderr:
        # Told at the beginning of the phase, and again two seconds later.
        if "measuring" in line and int(line.split(" ok,")[0].rsplit(" ", 1)[1]) > 50:
            break
    children = psutil.Process(process.pid).children(recursive=True)
    os.kill(process.pid, signal.SIGTERM)  # taken as Ctrl-C is
    out, _ = process.communicate(timeout=30)
    result = json.loads(out)
    assert (process.returncode, result["verdict"]) == (7, "INVALID")
    assert "interrupted" in result["reasons"][0]
    assert result["summary"]["ok"] > 50
    assert len(children) == 2
    assert psutil.wait_procs(children, timeout=5)[1] == []


@pytest.mark.parametrize("file", ["tensors.py"])
def test_plain_locust_runs_the_files(upstream: Upstream, tmp_path: Path, file: str) -> None:
    url = upstream(key="k", models=["fake", "other"])
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(LOADTESTS / file), "--host", url),
            *("--headless", "-u", "4", "-r", "4", "-t", "4s", "--model", "fake", "--json"),
        ],
        env={**os.environ, "MODELOPS_API_KEY": "k"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout[done.stdout.index("[") :])
    assert row["num_requests"] > 50
    assert row["num_failures"] == 0


def test_plain_locust_says_what_is_wrong(upstream: Upstream, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(LOADTESTS / "embeddings.py")),
            *("--host", upstream(), "--headless", "-u", "2", "-t", "5s", "--model", "none"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert "no model 'none'" in done.stderr
