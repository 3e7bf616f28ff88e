"""INT8 keys and values on an NVIDIA GPU beside 16 bits: room, answers, drift.

The command is run once; what it measured is judged here. Then one engine answers a question.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kept_engine import KeptEngine

from modelops.config import ModelConfig
from modelops.environments import find_environment
from modelops.resolving import find_source

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.timeout(3600)]

START_SECONDS = 900
HEAD = 64
# A scale of four bytes for each token and head stands beside its values.
WIDTH = 1 + 4 / HEAD


@pytest.fixture(scope="module", autouse=True)
def on_a_gpu(vllm_installed: Path) -> None:
    """Skip, visibly, where vLLM computes on something else."""
    if find_environment("vllm", vllm_installed).platform != "cuda":
        pytest.skip("vLLM is not built for CUDA here")


@pytest.fixture(scope="module")
def rows(
    vllm_installed: Path, smollm2_artifact: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Measure SmolLM2 in auto (16 bits), fp8 and int8 by the command; return its rows by type."""
    folder = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "modelops", "bench", str(smollm2_artifact)]
    options = ["--engine", "vllm", "--kv-cache-dtype", "auto,fp8,int8", "--enforce-eager"]
    done = subprocess.run(
        [*command, *options, "-o", str(folder), "--json"],
        env={**os.environ, "MODELOPS_ENGINES_DIR": str(vllm_installed)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0
    return {row["kv_cache_dtype"]: row for row in json.loads(done.stdout)["rows"]}


def test_int8_starts_and_takes_a_byte_a_value_and_its_scales(rows: dict[str, Any]) -> None:
    assert rows["int8"]["state"] == "measured", rows["int8"]["why"]
    cache = rows["int8"]["cache"]
    assert cache["bytes_per_value"] == pytest.approx(WIDTH, rel=0.02)
    assert rows["auto"]["cache"]["bytes_per_value"] == pytest.approx(2, rel=0.02)
    ratio = cache["tokens_per_gib"] / rows["auto"]["cache"]["tokens_per_gib"]
    assert ratio == pytest.approx(2 / WIDTH, rel=0.03)


def test_in_the_same_memory_16_bits_must_preempt_and_int8_need_not(rows: dict[str, Any]) -> None:
    assert rows["auto"]["tight"]["must_preempt"]
    assert rows["auto"]["tight"]["preemptions"] > 0
    assert not rows["int8"]["tight"]["must_preempt"]
    assert rows["int8"]["tight"]["preemptions"] == 0
    assert rows["auto"]["fits"]["preemptions"] == 0


def test_every_request_was_answered_whole(rows: dict[str, Any]) -> None:
    for row in rows.values():
        for place in ("fits", "tight"):
            assert row[place]["failed"] == 0, row[place]["failures"]


def test_the_same_type_does_not_drift_from_itself(rows: dict[str, Any]) -> None:
    assert rows["auto"]["repeat"]["forced"]["max"] <= 0.05


def test_int8_drifts_little(rows: dict[str, Any]) -> None:
    """Garbage, which a build without the kernels writes, is several nats a token."""
    drift = rows["int8"]["drift"]
    assert drift["against"] == "auto"
    assert drift["forced"]["mean"] < 0.1
    assert drift["same_top"] > 0.95
    assert drift["same_tokens"] / drift["tokens"] > 0.5


@pytest.fixture(scope="module")
def engine(
    rows: dict[str, Any], vllm_installed: Path, smollm2_artifact: Path
) -> Iterator[KeptEngine]:
    """Start it once more in int8, after the others have left the GPU."""
    source, _ = find_source(smollm2_artifact)
    options = {"kv_cache_dtype": "int8", "kv_cache_gib": 0.5, "enforce_eager": True}
    with (
        tempfile.TemporaryDirectory(prefix="mo-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("MODELOPS_ENGINES_DIR", str(vllm_installed))
        kept = KeptEngine(
            ModelConfig(
                name="smollm2",
                source=source,
                engine="vllm",
                load_seconds=START_SECONDS,
                options={**options, "max_model_len": 4096},
            ),
            Path(folder),
        )
        try:
            kept.start()
            kept.until_state("ready", START_SECONDS)
            yield kept
        finally:
            kept.close()


def test_it_answers_sanely_also_behind_a_long_prompt(engine: KeptEngine) -> None:
    question = "The capital of France is"
    assert engine.complete(question, 1).strip() == "Paris"
    filler = "The weather report said that it would rain in the north and stay dry elsewhere. "
    assert engine.complete(filler * 120 + question, 1).strip() == "Paris"


def test_what_is_in_use_is_what_was_asked_for(engine: KeptEngine) -> None:
    cache = engine.replica.describe["kv_cache"]
    assert cache["asked"] == "int8"
    assert cache["bytes_per_value"] == pytest.approx(WIDTH, rel=0.02)
