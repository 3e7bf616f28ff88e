"""The real vLLM behind the gateway: its start, what is in use, busy; and its flags."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cuda_launches
import pytest
from running_server import Server
from server_processes import gets
from vllm_processes import complete

from modelops.config import ModelConfig
from modelops.environments import EngineEnvironment, find_environment
from modelops.errors import MissingEnvironmentError
from modelops.resolving import find_source
from modelops_servers.keeper.kv_cache import read_cpu_flags
from modelops_servers.keeper.seat import Vllm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def environment(vllm_installed: Path) -> EngineEnvironment:
    return find_environment("vllm", vllm_installed)


def test_its_start_is_shown(gateway: Server) -> None:
    log = "".join(gateway.log)
    # What takes less than half a second may go by between two beats.
    stages = ["loading smollm2 from", "smollm2: reading the model's", "smollm2: starting the wor"]
    places = [log.index(stage) for stage in stages]
    assert places == sorted(places)


def test_what_is_in_use_is_described(gateway: Server, environment: EngineEnvironment) -> None:
    (said,) = (m for m in gateway.ready["models"] if m["name"] == "smollm2")
    assert said["engine_version"].startswith(environment.version.partition("+")[0])
    assert said["served_model_name"] == "smollm2"
    assert said["max_model_len"] == 2048
    assert said["precision"] == "bfloat16"
    cache = said["kv_cache"]
    assert cache["asked"] == "auto"
    assert cache["bytes"] == 2**29
    assert cache["bytes_per_value"] == pytest.approx(2, rel=0.02)
    assert cache["tokens_per_gib"] == pytest.approx(46592, rel=0.02)


def test_busy_is_not_stuck(gateway: Server) -> None:
    """Long prompts and many streams at once, on one core, which may be a slow one."""
    prompts = [f"{i} " + "word " * (900 if i < 2 else 5) for i in range(8)]
    with gets(gateway, "/v2/models/smollm2/ready") as asked, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda prompt: complete(gateway, "smollm2", prompt, 32), prompts))
    assert not asked.failed
    assert asked.statuses


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
    source, _ = find_source(smollm2_artifact)
    options = {"kv_cache_dtype": "fp8"}
    asked = ModelConfig(name="smollm2", source=source, engine="vllm", options=options)
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
