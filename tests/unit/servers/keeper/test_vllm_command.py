"""vLLM's command line and environment, from typed options."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelops.config import ModelConfig
from modelops.environments import EngineEnvironment
from modelops.errors import InputError, MissingEnvironmentError
from modelops_servers.keeper import vllm_command
from modelops_servers.keeper.vllm_command import launch, temporary_folder

SOCKET = Path("/run/0@1.1.sock")

MakeEnvironment = Callable[..., EngineEnvironment]


def config(aliases: tuple[str, ...] = (), **options: Any) -> ModelConfig:
    return ModelConfig(
        name="smol", aliases=aliases, source=Path("/m/1"), engine="vllm", options=options
    )


def command(environment: EngineEnvironment, **options: Any) -> list[str]:
    return list(launch(config(**options), environment, SOCKET, {}).command)


def after(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def test_the_least_that_is_told(environment: MakeEnvironment) -> None:
    assert command(environment("cuda")) == [
        "/engines/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server",
        "--model", "/m/1", "--served-model-name", "smol", "--uds", "/run/0@1.1.sock",
        "--enable-server-load-tracking", "--disable-uvicorn-access-log",
    ]  # fmt: skip


def test_a_relative_folder_is_named_in_full_since_the_engine_runs_elsewhere(
    environment: MakeEnvironment,
) -> None:
    relative = config().model_copy(update={"source": Path("artifacts/m/1")})
    words = list(launch(relative, environment("cuda"), SOCKET, {}).command)
    assert after(words, "--model") == str(Path.cwd() / "artifacts/m/1")


def test_every_option_is_told(environment: MakeEnvironment) -> None:
    words = command(
        environment("cuda"),
        dtype="float16",
        kv_cache_dtype="fp8",
        kv_cache_gib=1.5,
        max_model_len=2048,
        gpu_memory_utilization=0.5,
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        distributed_executor_backend="ray",
        quantization="awq",
        enforce_eager=True,
        speculative={"tokens": 3, "lookup_max": 5},
        engine_args=["--max-num-seqs", "16"],
    )
    assert after(words, "--dtype") == "float16"
    assert after(words, "--kv-cache-dtype") == "fp8"
    assert after(words, "--kv-cache-memory-bytes") == str(3 * 2**29)
    assert after(words, "--max-model-len") == "2048"
    assert after(words, "--gpu-memory-utilization") == "0.5"
    assert after(words, "--tensor-parallel-size") == "4"
    assert after(words, "--pipeline-parallel-size") == "2"
    assert after(words, "--distributed-executor-backend") == "ray"
    assert after(words, "--quantization") == "awq"
    assert "--enforce-eager" in words
    assert json.loads(after(words, "--speculative-config")) == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "prompt_lookup_max": 5,
        "prompt_lookup_min": 2,
    }
    assert words[-2:] == ["--max-num-seqs", "16"]


def test_an_alias_is_a_name_that_vllm_knows_too(environment: MakeEnvironment) -> None:
    words = list(launch(config(("chat", "a")), environment("cuda"), SOCKET, {}).command)
    at = words.index("--served-model-name")
    assert words[at + 1 : at + 4] == ["smol", "chat", "a"]


def test_on_a_cpu_the_cache_leaves_memory_to_others(
    environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_command, "available_gib", lambda: 8.0)
    how = launch(config(), environment("cpu"), SOCKET, {})
    assert after(list(how.command), "--kv-cache-memory-bytes") == str(2 * 2**30)
    assert "2 GiB" in how.notes[0]
    monkeypatch.setattr(vllm_command, "available_gib", lambda: 800.0)
    assert after(command(environment("cpu")), "--kv-cache-memory-bytes") == str(4 * 2**30)
    assert "--kv-cache-memory-bytes" not in command(environment("cpu"), gpu_memory_utilization=0.5)


def test_this_machine_says_how_much_is_free() -> None:
    assert 0 < vllm_command.available_gib() < 100_000


def test_nothing_of_this_process_leaks_into_the_engines(environment: MakeEnvironment) -> None:
    base = {
        "PATH": "/usr/bin",
        "HOME": "/home/me",
        "CUDA_VISIBLE_DEVICES": "1",
        "PYTHONPATH": "/ours",
        "PYTHONHOME": "/ours",
        "PYTHONWARNINGS": "error",
        "VIRTUAL_ENV": "/ours",
        "MODELOPS_API_KEYS": "a-secret-key",
        "VLLM_API_KEY": "theirs",
        "VLLM_CPU_KVCACHE_SPACE": "40",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "0",
    }
    variables = launch(config(), environment("cuda"), SOCKET, base).environment
    assert variables["HOME"] == "/home/me"
    assert variables["CUDA_VISIBLE_DEVICES"] == "1"
    assert variables["PATH"].startswith("/engines/vllm/bin:")
    assert variables["HF_HUB_OFFLINE"] == "1"
    assert variables["VLLM_NO_USAGE_STATS"] == "1"
    assert variables["VLLM_LOGGING_LEVEL"] == "INFO"
    python = {k: v for k, v in variables.items() if k.startswith("PYTHON")}
    assert python == {"PYTHONNOUSERSITE": "1", "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
    gone = {"VIRTUAL_ENV", "MODELOPS_API_KEYS", "VLLM_API_KEY", "VLLM_CPU_KVCACHE_SPACE"}
    assert not gone & variables.keys()
    assert "a-secret-key" not in str(variables)


def test_its_temporary_files_are_beside_its_socket_where_their_paths_fit(
    environment: MakeEnvironment,
) -> None:
    variables = launch(config(), environment("cuda"), SOCKET, {}).environment
    assert variables["TMPDIR"] == "/run/0@1.1.tmp"
    assert "torchinductor" in variables["TORCHINDUCTOR_CACHE_DIR"]
    assert temporary_folder(Path("/" + "x" * 80) / "e.sock") is None


def test_an_argument_that_this_vllm_does_not_know_is_found_before_a_start(
    environment: MakeEnvironment,
) -> None:
    with pytest.raises(InputError, match="did you mean --max-num-seqs"):
        command(environment("cuda"), engine_args=["--max-num-seq", "4"])
    command(environment("cuda"), engine_args=["--max_num_seqs=4", "--hf-overrides.x", "1"])
    flags = {k: None for k in environment("cuda").flags if k != "--enforce-eager"}
    with pytest.raises(MissingEnvironmentError, match="does not know --enforce-eager"):
        command(environment("cuda", flags=flags), enforce_eager=True)
