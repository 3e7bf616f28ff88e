"""What is emitted for CUDA: every option of vLLM at least once, as the keeper would say it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.config import ModelConfig, VllmOptions
from modelops.environments import EngineEnvironment
from modelops.environments.catalogue import ENGINES
from modelops_servers.keeper.kv_cache import SPELLED
from modelops_servers.keeper.vllm_command import launch

RECORD = Path(__file__).parent.parent / "golden" / "vllm-cuda-flags.json"

_EVERYTHING: dict[str, Any] = {
    "dtype": "bfloat16",
    "kv_cache_gib": 0.5,
    "max_model_len": 1024,
    "gpu_memory_utilization": 0.5,
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 2,
    "distributed_executor_backend": "ray",
    "speculative": {"tokens": 3, "lookup_max": 5, "lookup_min": 1},
    "quantization": "awq",
    "enforce_eager": True,
    "engine_args": ["--max-num-seqs", "16"],
}
# Choices that one launch cannot hold all of.
_MORE: tuple[dict[str, Any], ...] = (
    {},
    {"dtype": "float16", "distributed_executor_backend": "mp"},
    {"dtype": "float32"},
    *({**_EVERYTHING, "kv_cache_dtype": kind} for kind in SPELLED),
)


@dataclass(frozen=True)
class CudaWheel:
    """vLLM's wheel for CUDA, as the lock pins it."""

    version: str
    requirement: str
    sha256: str


def locked_wheel() -> CudaWheel:
    """Return what ``engine install`` would fetch on a machine with a GPU."""
    build = ENGINES["vllm"].build("cuda")
    (lock,) = build.locks
    found = re.search(r"^vllm==(\S+) \\\n\s+--hash=sha256:(\w+)$", lock.path.read_text(), re.M)
    assert found is not None
    return CudaWheel(found[1], found[0], found[2])


def emitted() -> tuple[list[list[str]], dict[str, str]]:
    """Return the arguments of every launch, and the variables of vLLM's that are set for each."""
    options = [VllmOptions.model_validate(fields) for fields in _MORE]
    said = set().union(*(o.model_fields_set for o in options))
    assert said == set(VllmOptions.model_fields), "an option that no launch here has"
    lines, variables = [], {}
    for asked in options:
        config = ModelConfig(
            name="m", aliases=("chat",), source=Path("/m/1"), engine="vllm", options=asked
        )
        how = launch(config, _environment(), Path("/run/e.sock"), {})
        lines.append(list(how.command[3:]))
        variables.update({k: v for k, v in how.environment.items() if k.startswith("VLLM_")})
    return lines, variables


def flags_of(line: list[str]) -> dict[str, str | None]:
    """Return the flags of a command line with the value that stands after each."""
    return {
        word: None if after.startswith("--") else after
        for word, after in zip(line, [*line[1:], "--"], strict=True)
        if word.startswith("--")
    }


def read_record() -> dict[str, Any]:
    """Return what the CUDA wheel's own parser was last seen to take."""
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def _environment() -> EngineEnvironment:
    engine = ENGINES["vllm"]
    return EngineEnvironment(
        engine="vllm",
        python=Path("/engines/vllm/bin/python"),
        kind="managed",
        build="cuda",
        version=engine.build("cuda").version,
        platform="cuda",
        versions={},
        flags={},  # so that nothing but the wheel's parser says what it knows
        variables=engine.variables,
        unset=(),
        notes=(),
        current=True,
    )
