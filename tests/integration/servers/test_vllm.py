"""The real vLLM under its keeper: ready, stuck, killed, restarted, and nothing left of it.

One start is shared; what ends the engine stands last, since each such test costs another start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cuda_launches
import psutil
import pytest
from kept_engine import KeptEngine

from modelops.config import ModelConfig
from modelops.environments import EngineEnvironment, find_environment
from modelops.errors import MissingEnvironmentError
from modelops.resolving import find_source
from modelops_servers.keeper.kv_cache import read_cpu_flags
from modelops_servers.keeper.seat import Vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

START_SECONDS = 600
OPTIONS: dict[str, Any] = {"enforce_eager": True, "max_model_len": 2048, "kv_cache_gib": 0.5}
PARIS = "The capital of France is"


@pytest.fixture(scope="module")
def environment(vllm_installed: Path) -> EngineEnvironment:
    return find_environment("vllm", vllm_installed)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mo-", dir="/tmp") as path:
        yield Path(path)


def config(artifact: Path, **options: Any) -> ModelConfig:
    source, _ = find_source(artifact)
    return ModelConfig(
        name="smollm2",
        aliases=("chat",),
        source=source,
        engine="vllm",
        load_seconds=START_SECONDS,
        options=OPTIONS | options,
    )


@pytest.fixture(scope="module")
def engine(
    environment: EngineEnvironment, vllm_installed: Path, smollm2_artifact: Path, folder: Path
) -> Iterator[KeptEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODELOPS_ENGINES_DIR", str(vllm_installed))
        kept = KeptEngine(config(smollm2_artifact), folder)
        try:
            kept.start()
            kept.until_state("ready", START_SECONDS)
            yield kept
        finally:
            kept.close()


def gone(processes: list[psutil.Process], seconds: float = 5) -> bool:
    """Whether all are dead soon; a zombie is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            return True
        time.sleep(0.05)
    return False


def shared_memory() -> set[str]:
    return {p.name for p in Path("/dev/shm").glob("psm_*")}


def test_its_start_is_shown_and_it_is_ready_after_a_token(engine: KeptEngine) -> None:
    whys = [why for _, state, why in engine.states if state == "loading"]
    # What takes less than half a second may go by between two beats.
    order = ["starting vLLM", "reading the model's configuration", "starting the workers"]
    assert [why for why in whys if why in order] == order
    assert engine.complete(PARIS, 1).strip() == "Paris"


def test_what_is_in_use_is_described(engine: KeptEngine, environment: EngineEnvironment) -> None:
    said = engine.replica.describe
    assert said["engine_version"].startswith(environment.version.partition("+")[0])
    assert said["served_model_name"] == "smollm2"
    assert said["max_model_len"] == 2048
    assert said["precision"] == "bfloat16"
    cache = said["kv_cache"]
    assert cache["asked"] == "auto"
    assert cache["bytes"] == 2**29
    assert cache["bytes_per_value"] == pytest.approx(2, rel=0.02)
    assert cache["tokens_per_gib"] == pytest.approx(46592, rel=0.02)


def test_an_alias_is_served_as_it_is(engine: KeptEngine) -> None:
    asked = {"model": "chat", "prompt": PARIS, "max_tokens": 1, "temperature": 0}
    assert engine.ask("/v1/completions", asked)[0] == 200


def test_a_stopped_worker_is_stuck_within_seconds_though_it_is_idle(engine: KeptEngine) -> None:
    worker = engine.named("VLLM::Worker")
    worker.suspend()
    try:
        assert engine.until_state("stuck", 10) < 5
    finally:
        worker.resume()
    assert engine.until_state("ready", 20) < 15


def test_busy_is_not_stuck(engine: KeptEngine) -> None:
    """Long prompts and many streams at once, on one core, which may be a slow one."""
    before = len(engine.states)
    prompts = [f"{i} " + "word " * (900 if i < 2 else 5) for i in range(8)]
    threads = [
        threading.Thread(target=engine.complete, args=(prompt, 32), daemon=True)
        for prompt in prompts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
        assert not thread.is_alive()
    assert {state for _, state, _ in engine.states[before:]} <= {"ready"}


def test_int8_is_refused_before_anything_starts(
    environment: EngineEnvironment, smollm2_artifact: Path, tmp_path: Path
) -> None:
    if environment.platform != "cpu":
        pytest.skip("what a CPU cannot do")
    entry = {
        "name": "m",
        "source": str(smollm2_artifact),
        "engine": "vllm",
        "options": {"kv_cache_dtype": "int8"},
    }
    file = tmp_path / "modelops.yaml"
    file.write_text(json.dumps({"version": 1, "models": [entry]}))
    command = [sys.executable, "-m", "modelops", "serve", "--config", str(file), "--port", "0"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 5, done.stderr
    assert "int8_per_token_head" in done.stderr
    assert "TRITON_ATTN" in done.stderr
    assert "kv_cache_dtype can be auto, bf16" in done.stderr
    assert "starting the workers" not in done.stderr
    assert time.monotonic() - began < 30


def test_fp8_is_what_this_cpu_says_it_is(
    environment: EngineEnvironment, smollm2_artifact: Path
) -> None:
    if environment.platform != "cpu":
        pytest.skip("what a CPU can do")
    asked = config(smollm2_artifact, kv_cache_dtype="fp8")
    if read_cpu_flags() & {"avx512f", "amx_tile"}:
        Vllm.check(asked)
    else:
        with pytest.raises(MissingEnvironmentError, match="AVX-512 or AMX"):
            Vllm.check(asked)


_PARSE = """
import json, sys
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.entrypoints.launchers.cli_args import make_arg_parser
parser = make_arg_parser(FlexibleArgumentParser())
for words in json.load(sys.stdin):
    parsed = vars(parser.parse_args(words))
    print(json.dumps({k: v for k, v in parsed.items() if isinstance(v, (str, int, float, list))}))
"""


def test_vllms_own_parser_takes_every_argument_that_is_emitted(
    environment: EngineEnvironment,
) -> None:
    """That of the build for CPUs; what the one for CUDA says is in ``test_cuda_wheel.py``."""
    lines, _ = cuda_launches.emitted()
    done = subprocess.run(
        [environment.python, "-c", _PARSE],
        input=json.dumps(lines),
        env=environment.environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    parsed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [p["kv_cache_dtype"] for p in parsed[-4:]] == [
        "auto", "bfloat16", "fp8", "int8_per_token_head",
    ]  # fmt: skip
    for found in parsed:
        assert found["served_model_name"] == ["m", "chat"]
        assert found["uds"] == "/run/e.sock"


# From here on the engine ends.


def test_a_killed_worker_is_told_within_seconds_and_it_comes_back(engine: KeptEngine) -> None:
    engine.until_state("ready", START_SECONDS)
    before = engine.replica.restarts
    processes = engine.processes()
    shared = shared_memory()
    engine.named("VLLM::Worker").kill()
    assert engine.until_state("failed", 15) < 5
    assert gone(processes)
    engine.until(lambda: engine.replica.restarts == before + 1, 30)
    engine.until_state("ready", START_SECONDS)
    assert engine.complete(PARIS, 1).strip() == "Paris"
    # A killed one cannot clear up behind it: a quarter of a GiB each time.
    assert not shared & shared_memory()


def test_nothing_is_left_when_the_keeper_is_killed(engine: KeptEngine) -> None:
    before = engine.replica.restarts
    processes = engine.processes()
    assert {"VLLM::EngineCore", "VLLM::Worker"} <= {
        " ".join(p.cmdline()).strip() for p in processes
    }
    shared = shared_memory()
    socket = engine.replica.socket
    engine.named("modelops_servers.keeper").send_signal(signal.SIGKILL)
    assert gone(processes)
    engine.until(lambda: engine.replica.restarts == before + 1, 30)
    assert not socket.exists()
    assert not shared & shared_memory()


def test_nothing_is_left_when_it_is_killed_while_it_starts(engine: KeptEngine) -> None:
    engine.until(lambda: len(engine.processes()) >= 3, START_SECONDS)
    processes = engine.processes()
    child = engine.replica._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)  # the guardian itself
    assert gone(processes)
