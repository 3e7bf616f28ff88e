"""What an engine's HTTP may look like, and what it may not, over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from scripted_upstream import Exchange, Script, ScriptedUpstream, scripted

from modelops.errors import EngineError
from modelops_servers.front.openai.settings import UpstreamSettings
from modelops_servers.front.openai.upstream import Upstream

OK = b"HTTP/1.1 200 OK\r\n"
EMPTY = OK + b"Content-Length: 0\r\n\r\n"
Work = Callable[[Upstream, ScriptedUpstream], Awaitable[Any]]


def ask(script: Script, work: Work) -> Any:
    """Return what ``work`` returns over an upstream that follows ``script``."""

    async def main(server: ScriptedUpstream) -> Any:
        upstream = Upstream(server.url, settings=UpstreamSettings(first_byte_seconds=5))
        try:
            return await asyncio.wait_for(work(upstream, server), 20)
        finally:
            await upstream.close()

    with scripted(script) as server:
        return asyncio.run(main(server))


def sending(*pieces: bytes, close: bool = False) -> Script:
    async def script(exchange: Exchange) -> None:
        for piece in pieces:
            await exchange.send(piece)
            await asyncio.sleep(0.02)
        if close:
            exchange.close()

    return script


async def read(upstream: Upstream, **how: Any) -> bytes:
    answer = await upstream.open("POST", "/v1/completions", body=b"{}", **how)
    return await answer.whole(2**20)


async def twice(upstream: Upstream, server: ScriptedUpstream) -> tuple[bytes, int]:
    first = await read(upstream)
    assert await read(upstream) == first
    return first, server.connections


@pytest.mark.parametrize(
    ("pieces", "body", "connections"),
    [
        ([OK + b"Content-Length: 2\r\n\r\nab"], b"ab", 1),
        ([OK[:5], OK[5:] + b"content-le", b"ngth: 2\r\n\r\na", b"b"], b"ab", 1),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b"1\r\nb\r\n0\r\n\r\n"], b"ab", 1),
        ([OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-T: 1\r\n\r\n"], b"a", 1),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b"", 1),
        ([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", EMPTY], b"", 1),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na"], b"a", 1),
        ([OK + b"Content-Length: 1\r\nConnection: close\r\n\r\na"], b"a", 2),
        ([b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na"], b"a", 2),
        ([OK + b"Content-Length: 1\r\n\r\na" + EMPTY], b"a", 2),
    ],
)
def test_answers_and_whether_their_connection_is_used_again(
    pieces: list[bytes], body: bytes, connections: int
) -> None:
    assert ask(sending(*pieces), twice) == (body, connections)


def test_a_body_without_a_length_ends_with_its_connection() -> None:
    assert ask(sending(OK + b"\r\na", b"b", close=True), twice) == (b"ab", 2)


def test_hints_are_no_headers_of_the_answer() -> None:
    async def work(upstream: Upstream, _: ScriptedUpstream) -> Any:
        return (await upstream.open("POST", "/v1/completions")).headers

    script = sending(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + EMPTY)
    assert ask(script, work) == [(b"content-length", b"0")]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([OK + b"X: " + b"y" * 70_000], "headers are over"),
        (
            [b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
            "prot",
        ),
        ([b"SSH-2.0-OpenSSH\r\n"], "no HTTP"),
    ],
)
def test_what_is_refused(pieces: list[bytes], said: str) -> None:
    async def work(upstream: Upstream, _: ScriptedUpstream) -> None:
        with pytest.raises(EngineError, match=said):
            await read(upstream)

    ask(sending(*pieces), work)


def test_what_nobody_asked_for_ends_an_idle_connection() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(EMPTY)
        await asyncio.sleep(0.1)
        await exchange.send(EMPTY)

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        await read(upstream)
        await asyncio.sleep(0.3)
        await read(upstream)
        assert server.connections == 2

    ask(script, work)


def test_a_request_whose_answer_has_begun_is_not_sent_again() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        await read(upstream)
        server.script = sending(OK, close=True)
        with pytest.raises(EngineError):
            await read(upstream)
        assert len(server.requests) == 2

    ask(sending(EMPTY), work)


def test_no_header_can_bring_another_line() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        for bad in ("a\r\nb: c", "a\nb", "a\rb"):
            with pytest.raises(ValueError, match="line break"):
                await read(upstream, headers={"x-request-id": bad})
        assert server.connections == 0

    ask(sending(EMPTY), work)


def test_requests_at_once_have_connections_of_their_own_and_keep_them() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        for _ in range(3):
            assert await asyncio.gather(*(read(upstream) for _ in range(8))) == [b""] * 8
        assert server.connections == 8

    ask(sending(b"", EMPTY), work)
