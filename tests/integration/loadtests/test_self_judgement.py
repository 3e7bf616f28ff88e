"""Runs that may not be believed, and what says so: the generator itself, and the mock's log."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from modelops.progress import Progress, silent
from modelops_loadtests.load.arrivals import arrivals
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.runner import run

pytestmark = pytest.mark.slow
_HOGS = 12


def measure(
    server: MockServer, folder: Path, *, progress: Progress = silent, **options: Any
) -> dict[str, Any]:
    base = {"url": server.url, "scenario": "chat", "warmup_s": 0, "calibrate": False}
    asked = {**base, "output": folder, "server_metrics": False, **options}
    return run(asked, progress)


class CrowdedCore:
    """A run's ``progress``: once it measures, its generator shares one core with a dozen others."""

    def __init__(self) -> None:
        self._hogs: list[subprocess.Popen[bytes]] = []

    def __call__(self, text: str) -> None:
        if self._hogs or not text.startswith("measuring"):
            return
        core = min(os.sched_getaffinity(0))
        spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile os.getppid() > 1: 0"
        # A session of its own for each: Linux shares a core out between sessions first.
        self._hogs = [
            subprocess.Popen([sys.executable, "-S", "-c", spin], start_new_session=True)
            for _ in range(_HOGS)
        ]
        for child in psutil.Process().children():
            if "modelops_loadtests.child" in child.cmdline():
                os.sched_setaffinity(child.pid, [core])

    def close(self) -> None:
        for hog in self._hogs:
            hog.kill()
            hog.wait()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores are chosen on Linux only")
def test_l6_a_generator_without_a_core_of_its_own_is_late_and_says_so(tmp_path: Path) -> None:
    with MockServer(Script(ttft_ms=0)) as server, closing(CrowdedCore()) as crowd:
        # It would use all of a core, and gets a thirteenth.
        options = {"scenario": "embeddings", "users": 16, "warmup_s": 0.2, "duration_s": 2.0}
        result = measure(server, tmp_path, progress=crowd, **options)
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    late = [reason for reason in result["reasons"] if "ran late" in reason]
    assert "it waited for a core" in late[0]
    assert result["client"]["cpu_wait_share"] > 0.2
    assert result["client"]["lag_p99_ms"] > result["bounds"]["lag_p99_ms"]


def test_l11_prompts_that_the_server_counts_as_longer_fail_their_tolerance(
    tmp_path: Path,
) -> None:
    script = Script(ttft_ms=5, interval_ms=1, input_usage_factor=1.3)
    with MockServer(script) as server:
        result = measure(
            server, tmp_path, users=1, duration_s=0.6, input_tokens=40, output_tokens=4,
            slo=("error_rate=0.9",),
        )  # fmt: skip
    told = result["client"]["tokens"]["input"]
    assert (told["asked"], told["counted"]) == (40, 52)
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    reasons = [reason for reason in result["reasons"] if "tokens in prompts" in reason]
    assert "counts 52 tokens in prompts that were to have 40" in reasons[0]


def test_l12_the_rate_that_the_server_logs_is_the_one_that_is_reported(tmp_path: Path) -> None:
    with MockServer(Script(ttft_ms=5)) as server:
        result = measure(
            server, tmp_path, scenario="embeddings", rate=150.0, duration_s=1.5, seed=3
        )
        came = np.sort([at for at, _ in server.arrivals()])
    planned = arrivals(150, 1.5, seed=3).at
    assert len(came) == len(planned)
    rate = result["client"]["rate"]
    assert rate["scheduled"] == pytest.approx(len(planned) / 1.5)
    # As fast as it was reported, by the log of who received it; apart by the way there of the
    # first and the last request, which on a busy machine is not nothing.
    logged = rate["scheduled"] * np.ptp(planned) / np.ptp(came)
    assert rate["delivered"] == pytest.approx(logged, rel=0.15)
    off = abs(rate["delivered"] / rate["scheduled"] - 1)
    assert any("not the one asked for" in why for why in result["reasons"]) == (off > 0.01)


def test_l12_a_generator_that_cannot_keep_the_rate_is_invalid(tmp_path: Path) -> None:
    """One process sends some thousands a second, whatever the machine."""
    with MockServer(Script(ttft_ms=1)) as server:
        result = measure(
            server, tmp_path, scenario="embeddings", rate=40_000.0, arrivals="constant",
            duration_s=0.3, drain_s=8, timeout_s=8,
        )  # fmt: skip
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    rate = result["client"]["rate"]
    assert rate["delivered"] < 0.9 * rate["scheduled"]
    assert any("not the one asked for" in reason for reason in result["reasons"])


def test_l5_chunks_that_come_together_make_the_run_invalid(tmp_path: Path) -> None:
    script = Script(ttft_ms=5, interval_ms=5, events_per_write=2, framing="close")
    with MockServer(script) as server:
        result = measure(server, tmp_path, users=1, duration_s=0.6, output_tokens=8)
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    assert result["client"]["coalesced_share"] == pytest.approx(0.5, abs=0.01)
    assert any("came out of one read" in reason for reason in result["reasons"])
