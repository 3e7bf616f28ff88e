"""Tokens and latencies are counted once, whatever ended the request."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import requests
from raw_http import until
from scripted_upstream import (
    DONE,
    ROLE,
    STREAM,
    TOKENS,
    Exchange,
    event,
    usage,
    whole_stream,
)
from text_models import CHAT, ask, body, request, stage


async def _with_usage(exchange: Exchange) -> None:
    if exchange.path == "/tokenize":
        await exchange.answer({"count": 11})
        return
    asked = (exchange.json.get("stream_options") or {}).get("include_usage")
    await exchange.stream(*STREAM[:-1], *([event(usage(11, 4))] if asked else []), DONE)


def test_usage_that_the_client_asked_for() -> None:
    with stage(_with_usage) as on:
        got = ask(on, body(stream=True, stream_options={"include_usage": True}))[2]
        assert event(usage(11, 4)) in got
        until(lambda: on.tokens("prompt") == 11)
        assert on.tokens("completion") == 4
        assert [r.path for r in on.upstream.requests] == [CHAT]


def test_usage_that_nobody_asked_for_is_counted_all_the_same() -> None:
    """The request is not changed for it, and the client sees what it would see without us."""
    with stage(_with_usage) as on:
        assert ask(on, body(stream=True))[2] == b"".join(STREAM)
        until(lambda: on.tokens("prompt") == 11)
        assert on.tokens("completion") == 4
        chat, tokenize = on.upstream.requests
        assert "stream_options" not in chat.json
        assert tokenize.json == {"model": "m", "messages": chat.json["messages"]}
        assert on.value("modelops_prompts_uncounted_total") == 0


@pytest.mark.parametrize("streams", [True, False])
def test_usage_where_the_client_left(streams: bool) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.path == "/tokenize":
            await exchange.answer({"count": 11})
        elif streams:
            await exchange.head()
            await exchange.piece(event(ROLE) + TOKENS[0] + TOKENS[1])
            await exchange.left()
        else:
            await exchange.left()

    with stage(script) as on:
        with on.server.connect() as link:
            link.sendall(request(body(stream=streams)))
            until(lambda: on.upstream.open == 1)
            time.sleep(0.3)
        until(lambda: on.tokens("prompt") == 11)
        assert on.tokens("completion") == (2 if streams else 0)
        time.sleep(0.1)
        assert on.tokens("prompt") == 11


def test_a_prompt_of_token_ids_needs_no_engine() -> None:
    with stage(whole_stream) as on:
        ask(on, json.dumps({"model": "chat", "prompt": [[1, 2], [3]], "stream": True}).encode(),
            "/v1/completions")  # fmt: skip
        until(lambda: on.tokens("prompt") == 3)
        assert len(on.upstream.requests) == 1


@pytest.mark.parametrize("answer", [({"count": "x"}, 200), ({}, 404), (b"[", 200), ({}, 302)])
def test_a_prompt_that_nobody_can_count_is_said_so(answer: tuple[Any, int]) -> None:
    async def script(exchange: Exchange) -> None:
        if exchange.path == "/tokenize":
            await exchange.answer(*answer)
        else:
            await exchange.stream(*STREAM)

    with stage(script) as on:
        ask(on, body(stream=True))
        until(lambda: on.value("modelops_prompts_uncounted_total") == 1)
        assert on.tokens("prompt") == 0
        assert on.tokens("completion") == 4


def test_latencies_are_recorded_once() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.piece(event(ROLE))
        for data in TOKENS:
            await asyncio.sleep(0.1)
            await exchange.piece(data)
        await exchange.piece(DONE)
        await exchange.end()

    with stage(script, tokenizes=False) as on:
        for _ in range(2):
            ask(on, body(stream=True))
        ask_whole = requests.get(on.url + "/none", timeout=5)
        assert ask_whole.status_code == 404
        assert on.value("modelops_time_to_first_token_seconds_count") == 2
        assert 0.2 <= on.value("modelops_time_to_first_token_seconds_sum") < 0.5
        assert on.value("modelops_inter_token_latency_seconds_count") == 6
        assert 0.5 < on.value("modelops_inter_token_latency_seconds_sum") < 1
        assert on.value("modelops_inter_token_latency_seconds_bucket", le="0.05") == 0
        assert on.value("modelops_inter_token_latency_seconds_bucket", le="+Inf") == 6
