"""One streamed answer, and a load of them: only what came whole counts, by tokens, not chunks."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_upstream import DONE, Exchange, event, scripted

from modelops_servers.text_bench import load
from modelops_servers.text_bench.stream import Answer

Script = Callable[[Exchange], Awaitable[None]]


def chunk(counted: int, text: str = "x", **more: Any) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": counted, "total_tokens": 3 + counted}
    return event(json.dumps({"choices": [{"text": text}], "usage": usage, **more}))


def last(counted: int) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": counted, "total_tokens": 3 + counted}
    return event(json.dumps({"choices": [], "usage": usage}))


def run(
    script: Script, folder: Path, tokens: int, requests: int = 1, concurrency: int = 1
) -> tuple[list[Answer], list[str], float]:
    socket = folder / "e.sock"
    with scripted(script, socket):
        prompts = [(i, 2, 3) for i in range(requests)]
        return asyncio.run(load.run(socket, "m", prompts, tokens, concurrency))


def test_tokens_are_counted_not_chunks(tmp_path: Path) -> None:
    """Four tokens every 40 ms are 10 ms a token, whatever a chunk's gap is."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await asyncio.sleep(0.1)
        for counted in (4, 8, 12, 16):
            await exchange.piece(chunk(counted))
            await asyncio.sleep(0.04)
        await exchange.piece(last(16) + DONE)
        await exchange.end()

    answers, failures, seconds = run(script, tmp_path, 16)
    found = load.figures(answers, failures, seconds)
    assert failures == []
    assert found["output_tokens"] == 16
    assert found["prompt_tokens"] == 3
    assert found["tokens_per_chunk"] == 4
    (answer,) = answers
    assert answer.ttft >= 0.1
    assert len(answer.gaps) == 3
    # A sleep may take longer on a busy machine; the arithmetic is the same.
    assert min(answer.gaps) >= 0.02
    assert answer.tpot == pytest.approx(sum(answer.gaps) / 12)
    assert found["tpot_ms"].p50 == pytest.approx(sum(answer.gaps) / 12 * 1e3, abs=0.01)
    assert found["tokens_per_second"] == pytest.approx(16 / seconds, rel=0.01)


def test_a_chunk_without_a_new_token_is_no_token(tmp_path: Path) -> None:
    """The first one may only say who speaks; a token may be no text yet."""

    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.piece(chunk(0, ""))
        await asyncio.sleep(0.1)
        await exchange.piece(chunk(1, ""))
        await exchange.piece(chunk(2) + last(2) + DONE)
        await exchange.end()

    (answer,), failures, _ = run(script, tmp_path, 2)
    assert failures == []
    assert answer.ttft >= 0.1
    assert len(answer.arrivals) == 2
    assert answer.first_tokens == 1


def test_one_token_has_no_time_per_token(tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.stream(chunk(1), last(1), DONE)

    answers, failures, seconds = run(script, tmp_path, 1)
    found = load.figures(answers, failures, seconds)
    assert found["tpot_ms"] is None
    assert found["gap_ms"] is None
    assert found["ttft_ms"] is not None


def test_an_event_that_comes_in_pieces_is_one(tmp_path: Path) -> None:
    whole = chunk(1) + chunk(2) + last(2) + DONE

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*(whole[i : i + 7] for i in range(0, len(whole), 7)), pause=0.001)

    answers, failures, _ = run(script, tmp_path, 2)
    assert failures == []
    assert answers[0].tokens == 2


async def _error_in_the_stream(exchange: Exchange) -> None:
    error = {"error": {"message": "out of memory", "code": 500}}
    await exchange.stream(chunk(1), event(json.dumps(error)), DONE)


async def _cut(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.piece(chunk(1))
    exchange.reset()


async def _no_ending(exchange: Exchange) -> None:
    await exchange.stream(chunk(1), chunk(2), last(2))


async def _too_few(exchange: Exchange) -> None:
    await exchange.stream(chunk(1), last(1), DONE)


async def _refused(exchange: Exchange) -> None:
    await exchange.answer({"error": {"message": "too long"}}, 400)


async def _no_json(exchange: Exchange) -> None:
    await exchange.stream(event("<html>"), DONE)


async def _uncounted(exchange: Exchange) -> None:
    await exchange.stream(event('{"choices": [{"text": "a"}]}'), DONE)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (_error_in_the_stream, "an error within the stream: .*out of memory"),
        (_cut, "cut"),
        (_no_ending, "without its ending"),
        (_too_few, "1 tokens instead of 2"),
        (_refused, "status 400: .*too long"),
        (_no_json, "no JSON"),
        (_uncounted, "none that was counted"),
    ],
)
def test_what_did_not_come_whole_is_a_failure_that_counts_for_nothing(
    tmp_path: Path, script: Script, why: str
) -> None:
    async def first_fails(exchange: Exchange) -> None:
        if exchange.json["prompt"][0] == 0:
            await script(exchange)
        else:
            await exchange.stream(chunk(1), chunk(2), last(2), DONE)

    answers, failures, seconds = run(first_fails, tmp_path, 2, requests=3)
    found = load.figures(answers, failures, seconds)
    assert (found["requests"], found["completed"], found["failed"]) == (3, 2, 1)
    assert found["output_tokens"] == 4
    (said,) = found["failures"]
    assert said.startswith("1 × ")
    assert re.search(why, said)


def test_so_many_are_out_at_a_time_and_each_is_asked_alike(tmp_path: Path) -> None:
    out = most = 0
    bodies = []

    async def script(exchange: Exchange) -> None:
        nonlocal out, most
        bodies.append(exchange.json)
        out += 1
        most = max(most, out)
        await asyncio.sleep(0.02)
        out -= 1
        await exchange.stream(chunk(2), last(2), DONE)

    answers, failures, _ = run(script, tmp_path, 2, requests=12, concurrency=4)
    assert (len(answers), failures, most) == (12, [], 4)
    assert sorted(body.pop("prompt")[0] for body in bodies) == list(range(12))
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0]["ignore_eos"] is True
    assert bodies[0]["min_tokens"] == bodies[0]["max_tokens"] == 2
    assert bodies[0]["temperature"] == 0


def test_a_percentile_is_a_value_that_was_seen() -> None:
    found = load.spread([i / 1000 for i in range(1, 33)])
    assert found is not None
    assert (found.p50, found.p95, found.max) == (16, 31, 32)
    assert load.spread([]) is None
