"""The fixed workload: what fits in bf16, what must not, and the same for every type."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic import ValidationError
from scripted_upstream import Exchange, scripted

from modelops.errors import InputError, MissingEnvironmentError
from modelops.text_benchmark import TextBenchRequest
from modelops_servers.keeper.client import EngineClient
from modelops_servers.keeper.geometry import Geometry
from modelops_servers.keeper.vllm_metrics import read_counter
from modelops_servers.text_bench.passages import PASSAGES
from modelops_servers.text_bench.workload import Prompts, Workload, cache_bytes, plan, room

SMOLLM2 = Geometry(layers=30, kv_heads=3, head_size=64, latent=False, alike=True, dtype="float32")


def workload(platform: str = "cpu", **asked: object) -> Workload:
    return plan(TextBenchRequest.model_validate({"artifact": Path("m"), **asked}), platform)


@pytest.mark.parametrize(("platform", "block"), [("cuda", 16), ("cpu", 128)])
@pytest.mark.parametrize("concurrency", [1, 2, 3, 8, 64])
@pytest.mark.parametrize(("prompt", "answer"), [(256, 128), (128, 64), (1024, 128), (16, 512)])
def test_in_bf16_the_few_fit_and_the_crowd_does_not(
    platform: str, block: int, concurrency: int, prompt: int, answer: int
) -> None:
    work = workload(platform, concurrency=concurrency, input_tokens=prompt, output_tokens=answer)
    there = room(work.cache_tokens, block)
    assert there is not None
    longest = -(-(prompt + answer) // block) * block
    assert concurrency * longest <= there
    assert work.grown_tokens(work.concurrency, block, there) <= there
    assert work.grown_tokens(work.crowd, block, there) > there


def test_one_byte_a_value_holds_the_crowd_that_two_do_not() -> None:
    work = workload("cuda")
    there = room(int(work.cache_tokens * 2 / (1 + 4 / 64)) // 16 * 16, 16)
    assert there is not None
    assert work.crowd == 16
    # All sixteen begin, and grow to their end.
    assert work.grown_tokens(work.crowd, 16, there) == 4 * (384 + 192 + 320 + 256) <= there


def test_who_finds_no_room_for_a_prompt_waits_and_pushes_nobody_out() -> None:
    """Short requests that never grow beyond their first block are queued, not preempted."""
    work = workload(concurrency=2, input_tokens=64, output_tokens=32)
    there = room(work.cache_tokens, 128)
    assert there == 256
    assert work.grown_tokens(work.crowd, 128, there) == 256


def test_a_block_size_that_is_asked_for_counts() -> None:
    args = ["--block-size", "32"]
    assert workload("cuda", options={"engine_args": args}).block_tokens == 32
    assert workload(options={"engine_args": ["--block-size=64"]}).block_tokens == 64


def test_what_the_engine_does_not_say_is_unknown() -> None:
    assert room(None, 16) is None
    assert room(1024, None) is None


def test_the_cache_is_sized_by_the_models_configuration() -> None:
    work = workload()
    assert cache_bytes(work, SMOLLM2, 1, 1) == work.cache_tokens * 30 * 3 * 64 * 2 * 2
    assert cache_bytes(work, SMOLLM2, 3, 1) * 3 == cache_bytes(work, SMOLLM2, 1, 1)
    latent = Geometry(30, 3, 64, latent=True, alike=True, dtype=None)
    with pytest.raises(InputError, match="does not follow") as caught:
        cache_bytes(work, latent, 1, 1)
    assert "--kv-cache-gib" in (caught.value.hint or "")


def test_prompts_differ_in_length_and_from_where_they_begin() -> None:
    work = workload()
    prompts = Prompts([tuple(range(start, start + 200)) for start in (0, 200, 400, 600)])
    load = list(prompts.load(work, 0, 16))
    assert [len(p) for p in load[:4]] == [256, 64, 192, 128]
    assert len({p[0] for p in load}) == 16
    assert load == list(prompts.load(work, 0, 16))
    again = list(prompts.load(work, 16, 16))
    assert [len(p) for p in again] == [len(p) for p in load]
    assert not set(again) & set(load)
    drift = prompts.drift(work)
    assert [len(p) for p in drift] == [64] * 4 + [256] * 4
    assert [p[0] for p in drift] == [0, 200, 400, 600] * 2


def test_the_engine_tokenizes(tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        assert exchange.path == "/tokenize"
        await exchange.answer({"tokens": [len(exchange.json["prompt"]), 7]})

    async def ask() -> Prompts:
        async with EngineClient(socket=tmp_path / "e.sock") as client:
            return await Prompts.of(client, "m")

    with scripted(script, tmp_path / "e.sock"):
        prompts = asyncio.run(ask())
    assert prompts.drift(workload(input_tokens=16))[0] == (len(PASSAGES[0]), 7, len(PASSAGES[1]), 7)


@pytest.mark.parametrize("body", [{"tokens": []}, {"error": "no"}, b"<html>", {"tokens": ["a"]}])
def test_an_engine_that_does_not_tokenize_is_told(tmp_path: Path, body: object) -> None:
    async def ask() -> None:
        async with EngineClient(socket=tmp_path / "e.sock") as client:
            await Prompts.of(client, "m")

    async def script(exchange: Exchange) -> None:
        await exchange.answer(body)

    with (
        scripted(script, tmp_path / "e.sock"),
        pytest.raises(MissingEnvironmentError, match="/tokenize"),
    ):
        asyncio.run(ask())


def test_a_counter_is_read_by_its_whole_name() -> None:
    name = "vllm:num_preemptions_total"
    text = f'{name}{{engine="0"}} 3.0\n{name}{{engine="1"}} 4.0\n{name}_created 17e9\n'
    assert read_counter(text, name) == 7
    assert read_counter("vllm:other 1.0\n", name) is None


@pytest.mark.parametrize(
    "asked",
    [
        {"requests": 15},
        {"kv_cache_dtypes": ("int8", "int8")},
        {"kv_cache_dtypes": ()},
        {"kv_cache_dtypes": ("int7",)},
        {"concurrency": 0},
        {"kv_cache_gib": 0},
        {"options": {"nonsense": 1}},
    ],
)
def test_what_cannot_be_meant_is_refused(asked: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        workload(**asked)
