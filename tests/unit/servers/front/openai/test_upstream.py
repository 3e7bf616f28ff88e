"""One engine as a front sees it, over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_upstream import DONE, Exchange, Script, ScriptedUpstream, event, scripted, token

from modelops.errors import DeadlineError, EngineError, NotReadyError
from modelops_servers.front.openai.settings import UpstreamSettings
from modelops_servers.front.openai.upstream import Upstream

SETTINGS = UpstreamSettings(
    connect_seconds=0.5, first_byte_seconds=5, idle_seconds=5, keep_alive_seconds=2
)
Work = Callable[[Upstream, ScriptedUpstream], Awaitable[Any]]


def ask(script: Script, work: Work, **changes: Any) -> Any:
    """Return what ``work`` returns over an upstream that follows ``script``."""

    async def main(server: ScriptedUpstream) -> Any:
        upstream = Upstream(server.url, settings=replace(SETTINGS, **changes))
        try:
            return await asyncio.wait_for(work(upstream, server), 20)
        finally:
            await upstream.close()
            await asyncio.sleep(0)
            assert upstream.in_flight == 0

    with scripted(script) as server:
        return asyncio.run(main(server))


async def read(upstream: Upstream, _: ScriptedUpstream | None = None) -> bytes:
    answer = await upstream.open("POST", "/v1/chat/completions", body=b"{}", streams=True)
    return await answer.whole(2**30)


async def stream(exchange: Exchange) -> None:
    await exchange.stream(event(token("a")), event(token("b")), DONE)


WHOLE = event(token("a")) + event(token("b")) + DONE


def test_bytes_pass_as_they_are() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open(
            "POST", "/v1/chat/completions", headers={"x-request-id": "r1"}, body=b'{"a":1}'
        )
        assert answer.status == 200
        assert dict(answer.headers)[b"content-type"] == b"text/event-stream; charset=utf-8"
        assert upstream.in_flight == 1
        assert await answer.whole(2**30) == WHOLE
        assert upstream.in_flight == 0
        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert request.body == b'{"a":1}'
        names = [name.lower() for name, _ in request.raw_headers]
        assert sorted(names) == ["content-length", "host", "x-request-id"]

    ask(stream, work)


def test_over_a_unix_socket(tmp_path: Path) -> None:
    async def main() -> bytes:
        upstream = Upstream(socket=tmp_path / "s", settings=SETTINGS)
        try:
            return await read(upstream)
        finally:
            await upstream.close()

    with scripted(stream, tmp_path / "s"):
        assert asyncio.run(main()) == WHOLE


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/api/v1"])
def test_a_url_with_and_without_its_version(path: str) -> None:
    async def main(server: ScriptedUpstream) -> None:
        upstream = Upstream(server.url + path, key="k", settings=SETTINGS)
        try:
            await read(upstream)
        finally:
            await upstream.close()
        (request,) = server.requests
        prefix = "/api" if "api" in path else ""
        assert request.path == f"{prefix}/v1/chat/completions"
        assert request.headers["authorization"] == "Bearer k"

    with scripted(stream) as server:
        asyncio.run(main(server))


def test_a_compressed_body_stays_compressed() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"\x1f\x8bnot really", 200, b"Content-Encoding: gzip")

    async def work(upstream: Upstream, server: ScriptedUpstream) -> bytes:
        return await read(upstream)

    assert ask(script, work) == b"\x1f\x8bnot really"


def test_cookies_are_not_kept() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({}, 200, b"Set-Cookie: a=b; Path=/")

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        await read(upstream)
        await read(upstream)
        assert "cookie" not in server.requests[1].headers
        assert server.connections == 1

    ask(script, work)


def test_a_large_body_arrives_whole() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({"size": len(exchange.body)})

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        body = memoryview(bytes(5 * 2**20))
        answer = await upstream.open("POST", "/v1/completions", body=body)
        assert await answer.read() == b'{"size": 5242880}'
        assert server.requests[0].headers["content-length"] == "5242880"

    ask(script, work)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({}, status, b"Location: /elsewhere")

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        with pytest.raises(EngineError, match="redirect"):
            await read(upstream)
        assert len(server.requests) == 1

    ask(script, work)


def test_nobody_listens(tmp_path: Path) -> None:
    async def main(**where: Any) -> None:
        upstream = Upstream(settings=SETTINGS, **where)
        try:
            with pytest.raises(NotReadyError, match="cannot be reached"):
                await read(upstream)
        finally:
            await upstream.close()

    with scripted() as server:
        url = server.url
    asyncio.run(main(url=url))
    asyncio.run(main(socket=tmp_path / "none"))
    asyncio.run(main(url="http://no-such-host.invalid"))


async def _garbage(exchange: Exchange) -> None:
    await exchange.send(b"\x00\x01 this is no HTTP\r\n\r\n")
    exchange.close()


async def _half_head(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-")
    exchange.close()


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


async def _close(exchange: Exchange) -> None:
    exchange.close()


@pytest.mark.parametrize("script", [_garbage, _half_head, _reset, _close])
def test_what_breaks_before_the_answer(script: Script) -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        with pytest.raises(EngineError, match="before it answered"):
            await read(upstream)
        assert len(server.requests) == 1

    ask(script, work)


async def _cut(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.piece(event(token("a")))
    exchange.close()


async def _cut_hard(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.piece(event(token("a")))
    await asyncio.sleep(0.1)
    exchange.reset()


async def _cut_length(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + event(token("a")))
    exchange.close()


async def _bad_chunk(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.piece(event(token("a")))
    await asyncio.sleep(0.1)
    await exchange.send(b"nonsense\r\n")


@pytest.mark.parametrize("script", [_cut, _cut_hard, _cut_length, _bad_chunk])
def test_what_breaks_in_the_middle_gives_what_had_come(script: Script) -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        await asyncio.sleep(0.3)  # the break is here before the first read
        assert await answer.read() == event(token("a"))
        for _ in range(2):
            with pytest.raises(EngineError, match="in the middle"):
                await answer.read()

    ask(script, work)


@pytest.mark.parametrize("script", [_cut, _cut_hard, _cut_length, _bad_chunk])
def test_what_breaks_while_somebody_waits_is_known_at_once(script: Script) -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        assert await answer.read() == event(token("a"))
        began = time.monotonic()
        with pytest.raises(EngineError, match="in the middle"):
            await answer.read()
        assert time.monotonic() - began < 1

    ask(script, work)


def test_silence_before_the_headers() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            await read(upstream)
        assert time.monotonic() - began < 1
        await _until(lambda: server.left)

    ask(script, work, first_byte_seconds=0.2)


def test_silence_after_the_headers() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        with pytest.raises(DeadlineError, match="first byte"):
            await read(upstream)
        await _until(lambda: server.left)

    ask(script, work, first_byte_seconds=0.2)


def test_an_answer_in_one_piece_may_take_its_time() -> None:
    async def script(exchange: Exchange) -> None:
        await asyncio.sleep(0.5)
        await exchange.answer({"ok": 1})

    async def work(upstream: Upstream, server: ScriptedUpstream) -> bytes:
        answer = await upstream.open("POST", "/v1/completions")
        return await answer.read()

    assert ask(script, work, first_byte_seconds=0.2) == b'{"ok": 1}'


def test_silence_in_the_middle() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for _ in range(5):
            await exchange.piece(event(token("a")))
            await asyncio.sleep(0.15)  # together longer than the bound, each of them shorter
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        came = 0
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        while came < 5:
            came += (await answer.read()).count(b"data:")
        with pytest.raises(DeadlineError, match="too long"):
            await answer.read()
        await _until(lambda: server.left)

    ask(script, work, idle_seconds=0.3)


def test_a_slow_reader_is_not_the_engines_silence() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        await asyncio.sleep(0.1)
        came = await answer.read()
        await asyncio.sleep(0.6)
        while piece := await answer.read():
            came += piece
        assert came == WHOLE

    async def script(exchange: Exchange) -> None:
        await exchange.stream(event(token("a")), event(token("b")), DONE, pause=0.15)

    ask(script, work, idle_seconds=0.3)


def test_the_deadline_ends_a_drip() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        while True:
            await exchange.piece(event(token("a")))
            await asyncio.sleep(0.05)

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open(
            "POST", "/v1/completions", streams=True, deadline=time.monotonic() + 0.4
        )
        with pytest.raises(DeadlineError, match="deadline"):
            await answer.whole(2**30)
        await _until(lambda: server.left)

    ask(script, work)


def test_abort_is_seen_at_once() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        reading = asyncio.create_task(answer.read())
        await asyncio.sleep(0.05)
        at = time.monotonic()
        answer.abort()
        with pytest.raises(EngineError, match="given up"):
            await reading
        await _until(lambda: server.left)
        assert server.left[0] - at < 0.5

    ask(script, work)


def test_abandon_ends_every_answer_with_its_reason() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answers = [await upstream.open("POST", "/v1/completions") for _ in range(3)]
        reading = [asyncio.create_task(a.read()) for a in answers]
        await asyncio.sleep(0.05)
        upstream.abandon(NotReadyError("the server stops"))
        for task in reading:
            with pytest.raises(NotReadyError, match="the server stops"):
                await task
        await _until(lambda: len(server.left) == 3)

    ask(script, work)


def test_cancelling_before_the_headers_closes_the_connection() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.left()

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        task = asyncio.create_task(read(upstream))
        await _until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await _until(lambda: server.left)

    ask(script, work)


def test_an_idle_connection_that_closes_under_a_request_is_replaced() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        assert await read(upstream) == WHOLE
        taken = 0

        async def closing(exchange: Exchange) -> None:
            nonlocal taken
            taken += 1
            if taken == 1:
                exchange.reset()
            else:
                await stream(exchange)

        server.script = closing
        assert await read(upstream) == WHOLE
        assert server.connections == 2

    ask(stream, work)


def test_an_idle_connection_is_not_kept_for_long() -> None:
    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        await read(upstream)
        await read(upstream)
        assert server.connections == 1
        await asyncio.sleep(0.5)
        await read(upstream)
        assert server.connections == 2

    ask(stream, work, keep_alive_seconds=0.1)


def test_a_reader_that_stops_stops_the_engine() -> None:
    """What waits for a slow client is bounded."""
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.head()
        while True:
            await exchange.piece(b"x" * 65536)
            sent += 65536

    async def work(upstream: Upstream, server: ScriptedUpstream) -> None:
        answer = await upstream.open("POST", "/v1/completions", streams=True)
        await answer.read()
        await asyncio.sleep(0.5)
        before = sent
        await asyncio.sleep(0.3)
        assert sent == before
        assert sent < 32 * 2**20
        answer.abort()

    ask(script, work)


async def _until(condition: Callable[[], Any], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        await asyncio.sleep(0.005)
