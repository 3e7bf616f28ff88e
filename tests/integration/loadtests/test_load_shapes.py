"""Every shape of load, for real, against the mock and its own stamps."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from modelops.errors import UsageError
from modelops_loadtests.load.arrivals import arrivals
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.runner import run
from modelops_loadtests.samples import SampleTable

LLM = Path(__file__).parents[3] / "loadtests" / "llm.py"
pytestmark = pytest.mark.slow


@contextmanager
def mock(**script: Any) -> Iterator[MockServer]:
    with MockServer(Script(**{"tokens": 3, "ttft_ms": 10.0, "interval_ms": 5.0, **script})) as made:
        yield made


def measure(server: MockServer, folder: Path, **options: Any) -> tuple[dict[str, Any], SampleTable]:
    base = {"url": server.url, "scenario": "chat", "duration_s": 1.0, "warmup_s": 0.3}
    result = run({**base, "output": folder, "calibrate": False, **options})
    return result, SampleTable.read_parquet(folder / "samples.parquet")


def test_two_processes_send_the_one_schedule_and_the_server_sees_it(tmp_path: Path) -> None:
    with mock() as server:
        result, samples = measure(server, tmp_path, rate=60.0, processes=2, seed=4)
        came = np.sort([at for at, _ in server.arrivals()])
    planned = arrivals(60, 1.3, seed=4)
    np.testing.assert_allclose(np.sort(samples["scheduled"]), planned.at, atol=1e-6)
    assert set(samples["process"]) == {0, 1}
    # The server's clock is the client's: what came lies behind its schedule, and by little.
    behind = came - came[0] - (planned.at - planned.at[0])
    assert np.median(np.abs(behind)) < 0.02
    rate = result["client"]["rate"]
    assert rate["scheduled"] == planned.count(0.3, 1.3)
    assert rate["delivered"] == pytest.approx(rate["scheduled"], rel=0.2)
    assert len(result["client"]["processes"]) == 2
    assert result["window"]["warmup_requests_excluded"] == planned.count(0, 0.3)


def test_l1_queueing_behind_one_connection_counts_from_the_scheduled_moment(
    tmp_path: Path,
) -> None:
    with mock(tokens=1, ttft_ms=500.0) as server:
        result, samples = measure(
            server, tmp_path, rate=10.0, arrivals="constant", connections=1, warmup_s=0, drain_s=1.0
        )
    ok = samples.where(samples.having("ok"))
    # One was answered every half second; a closed loop would have said 500 ms of each.
    number = np.arange(len(ok))
    assert 3 <= len(ok) <= 4
    np.testing.assert_allclose(ok["end"] - ok["scheduled"], 0.5 + 0.4 * number, atol=0.1)
    np.testing.assert_allclose(ok["end"] - ok["sent"], 0.5, atol=0.1)
    summary = result["summary"]
    assert summary["ttft_from_sent_ms"]["max"] < 650 < summary["ttft_ms"]["max"]
    assert summary["cut"] == summary["requests"] - len(ok) > 0
    # It was asked for: the run may be believed.
    assert not any("late" in reason for reason in result["reasons"])


def test_a_sweep_finds_the_load_up_to_which_the_server_keeps_up(tmp_path: Path) -> None:
    # One at a time in 40 ms: at most 25 a second.
    with mock(tokens=1, ttft_ms=40.0, concurrency=1) as server:
        result, samples = measure(
            server, tmp_path, sweep="rate=2,10,90", arrivals="constant", drain_s=0.2,
            slo=("error_rate=0.9",),
        )  # fmt: skip
    rows = result["sweep"]
    assert [row["asked"] for row in rows] == [2, 10, 90]
    assert rows[2]["delivered"] <= 26
    assert result["knee"]["load"] == 10
    assert "were answered" in result["knee"]["why"]
    # Each stage has a warm-up and a window of its own, on one axis.
    assert [round(row["end_s"] - row["start_s"], 3) for row in rows] == [1, 1, 1]
    assert [row["start_s"] for row in rows] == sorted(row["start_s"] for row in rows)
    assert set(samples["stage"]) == {0, 1, 2}
    assert rows[0]["summary"]["requests"] == 2


def test_a_trace_is_replayed_with_its_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    lines = [(0.0, 20, 3), (0.4, 30, 5), (0.45, 25, 4), (1.0, 40, 2)]
    trace.write_text(
        "".join(
            f'{{"at": {at}, "input_tokens": {i}, "output_tokens": {o}}}\n' for at, i, o in lines
        )
    )
    with mock(tokens=0) as server:
        options = {"url": server.url, "output": tmp_path, "calibrate": False, "warmup_s": 0.2}
        result = run({**options, "scenario": "chat", "trace": trace})
        with pytest.raises(UsageError, match="generates no text"):
            run({**options, "scenario": "embeddings", "trace": trace})
    samples = SampleTable.read_parquet(tmp_path / "samples.parquet")
    samples = samples.take(np.argsort(samples["scheduled"]))
    assert [round(at, 6) for at in samples["scheduled"]] == [at for at, _, _ in lines]
    assert samples["asked_input_tokens"].tolist() == [i for _, i, _ in lines]
    assert samples["input_tokens"].tolist() == [i for _, i, _ in lines]
    assert samples["output_tokens"].tolist() == [o for _, _, o in lines]
    assert result["summary"]["requests"] == 3  # the first was in the warm-up


@pytest.mark.parametrize("load", [{"users": 2}, {"rate": 4.0, "arrivals": "constant"}])
def test_a_turn_comes_after_the_reply_and_a_pause_and_carries_what_was_said(
    tmp_path: Path, load: dict[str, Any]
) -> None:
    with mock() as server:
        _, samples = measure(server, tmp_path, **load, turns=3, think_s=0.1, warmup_s=0)
    turns = samples["turn"]
    assert set(turns) == {0, 1, 2}
    whole = 0
    for number in set(samples["conversation"]):
        own = samples.where(samples["conversation"] == number)
        own = own.take(np.argsort(own["turn"]))
        assert (own["sent"][1:] - own["end"][:-1] >= 0.099).all()
        assert (np.diff(own["bytes_sent"]) > 0).all()
        assert (np.diff(own["input_tokens"]) > 3).all()  # the reply's tokens, and a new message
        whole += len(own) == 3
    assert whole >= 2


def test_an_undecided_run_goes_on_without_a_gap_until_it_is_decided(tmp_path: Path) -> None:
    with mock() as server:
        result, samples = measure(
            server, tmp_path, users=2, warmup_s=0, duration_s=0.5, max_duration_s=30.0,
            slo=("e2e_p95_ms=2000",),
        )  # fmt: skip
    assert result["gates"][0]["verdict"] == "PASS"
    assert result["extensions"][0]["at_s"] == pytest.approx(0.5, abs=0.01)
    assert "undecided after" in result["extensions"][0]["because"]
    assert result["window"]["end_s"] == result["extensions"][-1]["until_s"] < 30
    assert result["gates"][0]["samples"] >= 59
    # Two users of 20 ms each: the judging in between was no pause.
    assert np.diff(np.sort(samples["sent"])).max() < 0.4


def test_a_process_that_is_killed_makes_the_run_invalid_and_is_named(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            found = [
                child
                for child in psutil.Process().children()
                if "modelops_loadtests.child" in " ".join(child.cmdline())
            ]
            # Both send: what they wrote is there.
            files = [Path(child.cmdline()[-2]) for child in found]
            if len(found) == 2 and all(f.exists() and f.stat().st_size > 4000 for f in files):
                found[1].kill()
                killed.append(found[1].pid)
                return
            time.sleep(0.05)

    with mock() as server:
        killer = threading.Thread(target=kill_one)
        killer.start()
        result, samples = measure(server, tmp_path, rate=100.0, processes=2, duration_s=30.0)
        killer.join()
    assert killed
    assert (result["verdict"], result["exit_code"]) == ("INVALID", 7)
    assert (
        "process 2 of 2 of the load generator died: it was killed by SIGKILL"
        in result["reasons"][0]
    )
    assert result["window"]["end_s"] < 25
    assert set(samples["process"]) == {0, 1}
    assert (tmp_path / "report.html").exists()


def test_plain_locust_is_an_open_loop_where_a_rate_is_asked(tmp_path: Path) -> None:
    with mock(ttft_ms=400.0) as server:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "locust", "-f", str(LLM), "--host", server.url),
                *("--headless", "-u", "4", "--rate", "20", "--arrivals", "constant"),
            ],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        until = time.monotonic() + 60
        while len(server.arrivals()) < 30 and time.monotonic() < until:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=30)
        came = np.sort([at for at, _ in server.arrivals()])
    assert process.returncode == 0, printed
    # Four users who wait for 400 ms each would send ten a second.
    assert np.median(np.diff(came)) == pytest.approx(0.05, abs=0.01)
    assert "TTFT" in printed
