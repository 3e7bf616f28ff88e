"""Streams that no mock with good manners would send, and how they are recorded."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest
from scripted_upstream import DONE, ROLE, STREAM, Exchange, Script, event, scripted, silent

from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.target import Target
from modelops_loadtests.samples import Sample
from modelops_loadtests.scenarios.chat import ChatScenario
from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.sending import Sender

CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"


def nobody(path: str, body: Any = None, /) -> tuple[int, Any]:
    return 404, None


def sent(script: Script, *, timeout: float = 20.0) -> Sample:
    samples: list[Sample] = []
    scenario = ChatScenario.prepare(Settings("m"), nobody)
    with scripted(script) as upstream:
        connection = Connection(Target(upstream.url, {}), timeout=timeout)
        sender = Sender(scenario, samples, secret="sk-1")  # type: ignore[arg-type]
        sender.send(connection, scenario.request(Random(0)), scheduled=1.5, user=7, stage=2)
        connection.close()
    (sample,) = samples
    assert (sample.scheduled, sample.user, sample.stage, sample.scenario) == (1.5, 7, 2, "chat")
    return sample


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stream_is_over_with_its_own_ending_whatever_the_framing_does(framing: str) -> None:
    async def never_ends(exchange: Exchange) -> None:
        if framing == "close":
            await exchange.send(CLOSE + b"".join(STREAM))
        else:
            await exchange.head()
            for piece in STREAM:
                await exchange.piece(piece)
        await exchange.left()

    sample = sent(never_ends)
    assert (sample.outcome, sample.error) == ("ok", None)
    assert len(sample.chunk_at) == 4
    # Not when it was given up to wait for the framing's end.
    assert sample.last_token is not None
    assert sample.end - sample.last_token < 0.9


def test_an_event_that_comes_in_pieces_has_the_moment_of_its_last_byte() -> None:
    async def slowly(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.piece(event(ROLE))
        whole = STREAM[1]
        await exchange.piece(whole[:20])
        await asyncio.sleep(0.3)
        await exchange.piece(whole[20:] + STREAM[2] + STREAM[3][:9])
        await exchange.piece(STREAM[3][9:] + STREAM[4] + STREAM[5] + DONE)
        await exchange.end()

    sample = sent(slowly)
    assert sample.outcome == "ok"
    assert sample.first_byte is not None
    assert sample.first_token is not None
    assert sample.first_token - sample.first_byte > 0.25


@pytest.mark.parametrize(
    ("body", "status", "lines", "kind"),
    [
        ({"choices": [{"message": {"content": "yes"}}]}, 200, (), "not_a_stream"),
        ({"error": {"message": "no"}}, 200, (), "error_in_body"),
        ({"error": {"message": "full"}}, 503, (), "http_503"),
        (b"data: {}\n\n", 429, (b"Content-Type: text/event-stream",), "http_429"),
        (b"", 307, (b"Location: /else",), "redirect_307"),
        (b"", 200, (b"Content-Type: text/event-stream",), "unfinished"),
    ],
)
def test_what_is_no_stream_is_a_failure_of_a_known_kind(
    body: Any, status: int, lines: tuple[bytes, ...], kind: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(body, status, *lines)

    sample = sent(answer)
    assert (sample.outcome, sample.error, sample.status) == ("error", kind, status)


def test_a_server_that_says_nothing() -> None:
    sample = sent(silent, timeout=0.3)
    assert (sample.outcome, sample.error, sample.status) == ("error", "timeout", None)


@pytest.mark.parametrize("status", [200, 500])
def test_a_key_that_an_error_repeats_is_in_no_sample(status: int) -> None:
    async def repeats(exchange: Exchange) -> None:
        await exchange.answer({"error": {"message": "not for Bearer sk-1"}}, status)

    assert "not for Bearer ***" in (sent(repeats).detail or "")
