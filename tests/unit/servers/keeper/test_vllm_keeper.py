"""The keeper beside a scripted server: faults that a real engine cannot be made to show."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import scripted_vllm
from safetensors.numpy import save_file

from modelops.config import ModelConfig
from modelops.environments import EngineEnvironment
from modelops.errors import EngineError
from modelops_servers.keeper import progress, vllm
from modelops_servers.keeper.vllm import VllmKeeper

MakeEnvironment = Callable[..., EngineEnvironment]
CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "dtype": "bfloat16",
}


class Kept:
    """A keeper and the scripted server that it started."""

    def __init__(self, keeper: VllmKeeper, folder: Path) -> None:
        self.keeper = keeper
        self.folder = folder
        self.watching: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        return self.keeper.standing.state

    def break_by(self, fault: str) -> float:
        """Let the server fail from now on; return the time."""
        (self.folder / "fault").write_text(fault)
        return time.monotonic()

    async def until(self, state: str, seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while self.state != state:
                if self.watching is not None and self.watching.done():
                    self.watching.result()
                await asyncio.sleep(0.01)


Scenario = Callable[[Kept], Awaitable[None]]


@pytest.fixture
def keep(
    tmp_path: Path, environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Return what starts a keeper over a scripted server, and lets a scenario have it."""
    monkeypatch.setattr(vllm, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(vllm, "_POLL_SECONDS", 0.05)
    monkeypatch.setattr(vllm, "_LATE_SECONDS", 30.0)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    save_file({"w": np.ones(1, np.float32)}, tmp_path / "model" / "model.safetensors")

    def run(scenario: Scenario, fault: str = "", ready: bool = True, **options: Any) -> None:
        python = tmp_path / "python"
        words = (sys.executable, scripted_vllm.__file__, fault)
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        python.chmod(0o755)
        load_seconds = options.pop("load_seconds", 60)
        config = ModelConfig(
            name="tiny",
            source=tmp_path / "model",
            engine="vllm",
            load_seconds=load_seconds,
            options=options,
        )

        async def main() -> None:
            keeper = VllmKeeper(config, tmp_path / "e.sock", environment("cpu", python=python))
            kept = Kept(keeper, tmp_path)
            try:
                if ready:
                    await keeper.start()
                    kept.watching = asyncio.create_task(keeper.watch())
                await scenario(kept)
            finally:
                if kept.watching is not None:
                    kept.watching.cancel()
                    await asyncio.gather(kept.watching, return_exceptions=True)
                if keeper._process is not None and not keeper._process.exited:
                    os.kill(keeper._process.pid, signal.SIGKILL)
                    await keeper._process.wait()
                await keeper.close()

        asyncio.run(main())

    return run


def test_it_is_ready_once_a_token_was_answered_and_says_what_is_in_use(
    keep: Callable[..., None],
) -> None:
    async def scenario(kept: Kept) -> None:
        assert kept.state == "loading"
        described = await kept.keeper.start()
        assert kept.state == "ready"
        assert described["engine_version"] == "0.0-scripted"
        assert described["max_model_len"] == 512
        assert described["precision"] == "bfloat16"
        assert described["kv_cache"]["bytes_per_value"] == 2
        assert described["notes"]

    keep(scenario, ready=False)


@pytest.mark.parametrize(
    ("fault", "options", "says"),
    [
        ("breaks", {}, "exit code 1 while reading the model's configuration: ValueError: no room"),
        ("never", {"load_seconds": 1.5}, "not ready after 1.5 s: it was loading weights"),
        ("refuses", {}, "one token with 400"),
        ("leaves", {}, "exit code 0"),
        ("wide", {}, "asked for a KV cache of auto, which takes 2 bytes a value, and allocated 4"),
        ("garbage", {}, "does not say what it is"),
    ],
)
def test_what_does_not_become_ready_says_why_with_its_last_lines(
    keep: Callable[..., None], fault: str, options: dict[str, Any], says: str
) -> None:
    async def scenario(kept: Kept) -> None:
        with pytest.raises(EngineError) as caught:
            await kept.keeper.start()
        assert says in caught.value.message
        if fault not in ("refuses", "wide", "garbage"):
            assert "the end of its log:" in caught.value.message
            assert "Resolved architecture" in caught.value.message

    keep(scenario, fault, ready=False, **options)


def test_whatever_its_exit_code_an_end_is_a_failure_at_once(keep: Callable[..., None]) -> None:
    async def scenario(kept: Kept) -> None:
        assert kept.watching is not None
        at = kept.break_by("leaves")
        with pytest.raises(EngineError, match="exit code 0"):
            await asyncio.wait_for(kept.watching, 10)
        assert time.monotonic() - at < 2

    keep(scenario)


def test_an_engine_that_says_it_is_dead_is_believed(keep: Callable[..., None]) -> None:
    async def scenario(kept: Kept) -> None:
        assert kept.watching is not None
        kept.break_by("dead")
        with pytest.raises(EngineError, match="/health says 503"):
            await asyncio.wait_for(kept.watching, 10)

    keep(scenario)


@pytest.mark.parametrize(
    ("fault", "says"), [("silent", "metrics"), ("garbage", "metrics"), ("hung", "one token")]
)
def test_one_that_hangs_is_stuck_and_well_again_when_it_no_longer_does(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch, fault: str, says: str
) -> None:
    monkeypatch.setattr(vllm, "_HEALTH_SECONDS", 0.5)
    monkeypatch.setattr(progress, "UNANSWERED_SECONDS", 1.0)
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(progress, "CANARY_SECONDS", 0.5)
    monkeypatch.setattr(progress, "SLOWEST_FACTOR", 1)

    async def scenario(kept: Kept) -> None:
        kept.break_by(fault)
        await kept.until("stuck")
        assert says in kept.keeper.standing.why
        kept.break_by("")
        await kept.until("ready")

    keep(scenario)


def test_a_request_that_gets_on_is_no_hang_however_long(
    keep: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(progress, "CANARY_SECONDS", 0.5)
    monkeypatch.setattr(progress, "PROGRESS_SECONDS", 0.5)
    monkeypatch.setattr(progress, "SLOWEST_FACTOR", 1)

    async def scenario(kept: Kept) -> None:
        kept.break_by("working")
        # As a front does.
        asked = asyncio.create_task(kept.keeper._one_token(60))
        end = time.monotonic() + 2
        while time.monotonic() < end:
            assert kept.state == "ready"
            await asyncio.sleep(0.02)
        kept.break_by("hung")
        await kept.until("stuck")
        assert "1 requests" in kept.keeper.standing.why
        kept.break_by("")
        await kept.until("ready")
        assert (await asked)[0] == 200

    keep(scenario)


def test_one_whose_process_was_stopped_is_stuck_at_once(keep: Callable[..., None]) -> None:
    async def scenario(kept: Kept) -> None:
        assert kept.keeper._process is not None
        process = psutil.Process(kept.keeper._process.pid)
        process.suspend()
        await kept.until("stuck", 3)
        assert "is stopped" in kept.keeper.standing.why
        process.resume()
        await kept.until("ready", 5)

    keep(scenario)


def test_stopping_waits_for_what_runs_up_to_its_time(keep: Callable[..., None]) -> None:
    async def scenario(kept: Kept) -> None:
        kept.break_by("working")
        asked = asyncio.create_task(kept.keeper._one_token(60))
        await asyncio.sleep(0.3)
        assert kept.watching is not None
        kept.watching.cancel()
        stopping = asyncio.create_task(kept.keeper.stop(30))
        await asyncio.sleep(0.7)
        assert kept.state == "stopping"
        assert not asked.done()
        kept.break_by("")
        assert (await asyncio.wait_for(asked, 5))[0] == 200
        await asyncio.wait_for(stopping, 10)
        assert kept.keeper._process is not None
        assert kept.keeper._process.exited

    keep(scenario)


def test_stopping_does_not_wait_beyond_it(keep: Callable[..., None]) -> None:
    async def scenario(kept: Kept) -> None:
        kept.break_by("hung")
        asked = asyncio.create_task(kept.keeper._one_token(60))
        await asyncio.sleep(0.3)
        at = time.monotonic()
        await asyncio.wait_for(kept.keeper.stop(0.5), 10)
        assert time.monotonic() - at < 5
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)

    keep(scenario)
