"""An environment of vLLM as the installer would have recorded it; nothing is installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelops.environments import EngineEnvironment

CHOICES = ("auto", "bfloat16", "float16", "fp8", "fp8_e4m3", "int8_per_token_head")
FLAGS = (
    "--model", "--served-model-name", "--uds", "--enable-server-load-tracking", "--dtype",
    "--disable-uvicorn-access-log", "--max-model-len", "--gpu-memory-utilization",
    "--tensor-parallel-size", "--max-num-seqs", "--pipeline-parallel-size", "--quantization",
    "--distributed-executor-backend", "--enforce-eager", "--speculative-config",
    "--kv-cache-memory-bytes", "--attention-backend", "--block-size", "--hf-overrides",
)  # fmt: skip

MakeEnvironment = Callable[..., EngineEnvironment]


@pytest.fixture
def environment() -> MakeEnvironment:
    def make(platform: str = "cpu", **fields: Any) -> EngineEnvironment:
        said: dict[str, Any] = {
            "engine": "vllm",
            "python": Path("/engines/vllm/bin/python"),
            "kind": "managed",
            "build": "cuda" if platform == "cuda" else "cpu-community",
            "version": "0.32.0",
            "platform": platform,
            "versions": {},
            "flags": {**dict.fromkeys(FLAGS), "--kv-cache-dtype": CHOICES},
            "variables": {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"},
            "unset": (),
            "notes": (),
            "current": True,
        }
        return EngineEnvironment(**(said | fields))

    return make
