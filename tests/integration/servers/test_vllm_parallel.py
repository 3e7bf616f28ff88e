"""The real vLLM on two workers, each with half of every layer: its tokens are eager PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny_llm
import torch
from running_server import Server, start, write_config

from modelops.environments import find_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

START_SECONDS = 600
# Heads that two can share, of a size that the kernels for CPUs have.
SIZES = {
    "hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
}  # fmt: skip
PROMPTS = ([8, 10, 12, 14, 16, 18], [95, 100, 105, 110, 115, 120], [124, 130, 136, 142, 148, 154])
TOKENS = 24


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llm.model(**SIZES)


@pytest.fixture(scope="module")
def server(
    model: Any, vllm_installed: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    if find_environment("vllm", vllm_installed).platform != "cpu":
        pytest.skip("two workers on a machine's cores")
    folder = tmp_path_factory.mktemp("parallel")
    tiny_llm.folder(folder / "tiny", model)
    entry = {
        "name": "tiny",
        "source": "tiny",
        "engine": "vllm",
        "load_seconds": START_SECONDS,
        "options": {
            "tensor_parallel_size": 2,
            "speculative": {},
            "dtype": "float32",
            "kv_cache_gib": 0.1,
            "enforce_eager": True,
        },
    }
    config = write_config(folder / "modelops.yaml", [entry])
    running = start(
        "--config",
        str(config),
        env={"MODELOPS_ENGINES_DIR": str(vllm_installed)},
        seconds=START_SECONDS,
    )
    try:
        yield running
        assert running.stop() == 0
    finally:
        running.close()


def greedy(model: Any, ids: list[int]) -> list[int]:
    ids = list(ids)
    with torch.no_grad():
        for _ in range(TOKENS):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[-TOKENS:]


def test_two_workers_make_the_tokens_of_eager_pytorch(server: Server, model: Any) -> None:
    asked = {"model": "tiny", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    for prompt in PROMPTS:
        said = server.post(
            "/v1/completions", json={**asked, "prompt": prompt, "return_token_ids": True}
        )
        assert said.status_code == 200, said.text
        assert said.json()["choices"][0]["token_ids"] == greedy(model, prompt)


def test_each_worker_is_a_process_with_a_core_and_half_a_cache(server: Server) -> None:
    (described,) = server.ready["models"]
    assert described["tensor_parallel_size"] == 2
    # Half of the key and value heads are in each: were it all of them, this would be two.
    assert described["kv_cache"]["bytes_per_value"] == pytest.approx(4, rel=0.02)
    children = psutil.Process(server.process.pid).children(recursive=True)
    workers = [p for p in children if " ".join(p.cmdline()).startswith("VLLM::Worker_TP")]
    assert len(workers) == 2
    log = "".join(server.log)
    assert "local_rank=0, core ids=" in log
    assert "local_rank=1, core ids=" in log
