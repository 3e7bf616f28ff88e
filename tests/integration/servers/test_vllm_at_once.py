"""Two real vLLMs in one gateway, started side by side: one of two workers, and one that guesses.

Of the first, each worker has half of every layer, and its tokens are eager PyTorch's; the other's
are those that the shared gateway's vLLM makes without guessing.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import tiny_llm
import torch
from running_server import Server, start, write_config
from server_processes import is_gone, wait_until
from vllm_processes import MODULE, complete, named

from modelops.environments import find_environment

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

START_SECONDS = 600
# Heads that two can share, of a size that the kernels for CPUs have.
SIZES = {
    "hidden_size": 128, "intermediate_size": 192, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
}  # fmt: skip
PROMPTS = ([8, 10, 12, 14, 16, 18], [95, 100, 105, 110, 115, 120], [124, 130, 136, 142, 148, 154])
TOKENS = 24
# Each goes on as it began, and the next best token is 2 or more behind in its logit: tokens that
# are judged together are rounded otherwise than those that come one by one.
REPEATING = (
    "The cat sat on the mat. The dog sat on the mat. " * 8 + "The cat",
    "red, green, blue, " * 10 + "red,",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, " * 5 + "Monday,",
)
COMMON: dict[str, Any] = {"engine": "vllm", "load_seconds": START_SECONDS, "required": True}


@pytest.fixture(scope="module")
def model() -> Any:
    return tiny_llm.model(**SIZES)


@pytest.fixture(scope="module")
def server(
    model: Any,
    vllm_installed: Path,
    smollm2_artifact: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    if find_environment("vllm", vllm_installed).platform != "cpu":
        pytest.skip("two workers on a machine's cores")
    folder = tmp_path_factory.mktemp("parallel")
    tiny_llm.folder(folder / "tiny", model)
    two_workers = {
        "tensor_parallel_size": 2,
        "speculative": {},
        "dtype": "float32",
        "kv_cache_gib": 0.1,
        "enforce_eager": True,
    }
    guesses = {
        "speculative": {"method": "ngram"},
        "max_model_len": 2048,
        "kv_cache_gib": 0.5,
        "enforce_eager": True,
    }
    entries = [
        {**COMMON, "name": "tiny", "source": "tiny", "options": two_workers},
        {**COMMON, "name": "guessing", "source": str(smollm2_artifact), "options": guesses},
    ]
    running = start(
        "--config",
        str(write_config(folder / "modelops.yaml", entries)),
        env={"MODELOPS_ENGINES_DIR": str(vllm_installed)},
        seconds=START_SECONDS,
    )
    yield running
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
    (described,) = (m for m in server.ready["models"] if m["name"] == "tiny")
    assert described["tensor_parallel_size"] == 2
    # Half of the key and value heads are in each: were it all of them, this would be two.
    assert described["kv_cache"]["bytes_per_value"] == pytest.approx(4, rel=0.02)
    children = psutil.Process(server.process.pid).children(recursive=True)
    assert len(named(children, "VLLM::Worker_TP")) == 2
    log = "".join(server.log)
    assert "local_rank=0, core ids=" in log
    assert "local_rank=1, core ids=" in log


def test_speculation_proposes_what_is_taken_and_changes_no_token(
    server: Server, gateway: Server
) -> None:
    (described,) = (m for m in server.ready["models"] if m["name"] == "guessing")
    assert described["speculative"]["method"] == "ngram"
    for prompt in REPEATING:
        assert complete(server, "guessing", prompt, 32) == complete(gateway, "smollm2", prompt, 32)
    text = server.get("/metrics").text
    pattern = r'^vllm:spec_decode_num_accepted_tokens_total\{model="guessing".*\} (\S+)$'
    taken = re.findall(pattern, text, re.M)
    # Two thirds of all tokens or so; a handful could be chance.
    assert sum(map(float, taken)) > 32


def test_kill_of_the_supervisor_leaves_nothing_of_either(server: Server) -> None:
    """It stands last: nothing is left to ask."""
    every = psutil.Process(server.process.pid).children(recursive=True)
    assert len([p for p in every if MODULE in p.cmdline()]) == 2
    assert len(named(every, "VLLM::")) >= 4  # two engines' cores, and the workers of one
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    wait_until(lambda: all(is_gone(p) for p in every), seconds=10)
