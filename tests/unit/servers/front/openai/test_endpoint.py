"""The token path through the gateway's own HTTP, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from raw_http import Reader, until
from scripted_upstream import (
    DONE,
    ROLE,
    STREAM,
    TOKENS,
    Exchange,
    Script,
    endless,
    event,
    silent,
    token,
    whole_stream,
)
from text_models import CHAT, ask, body, error_of, request, stage


def test_a_front_without_a_text_model_loads_no_client() -> None:
    code = (
        "import sys, modelops_servers.front.app, modelops_servers.front.openai.endpoint; "
        "print('modelops_servers.front.openai.upstream' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# Bytes


def test_a_stream_passes_byte_for_byte() -> None:
    with stage(whole_stream) as on:
        status, headers, got = ask(on, body(stream=True))
        assert (status, got) == (200, b"".join(STREAM))
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["cache-control"] == "no-cache"
        assert headers["x-accel-buffering"] == "no"
        assert on.model.admitted == 0


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_single_bytes_and_any_line_ends(end: str) -> None:
    data = b"".join(STREAM).replace(b"\n", end.encode())

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*(data[i : i + 1] for i in range(len(data))))

    with stage(script, tokenizes=False) as on:
        assert ask(on, body(stream=True))[2] == data
        until(lambda: on.tokens("completion") == len(TOKENS))
        until(lambda: on.status_count(200) == 1)


def test_a_stream_without_chunks_ends_with_its_connection() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for data in STREAM:
            await exchange.send(data)
        exchange.close()

    with stage(script) as on:
        assert ask(on, body(stream=True))[2] == b"".join(STREAM)


def test_an_answer_in_one_piece_passes_byte_for_byte() -> None:
    said = b'{"id" :1, "choices":[], "usage":{"prompt_tokens":5,"completion_tokens":6}}\n'

    async def script(exchange: Exchange) -> None:
        await exchange.answer(said, 200, b"Set-Cookie: a=b", b"Server: v", b"Connection: X-A",
                              b"X-A: 1", b"openai-version: 2")  # fmt: skip

    with stage(script) as on:
        status, headers, got = ask(on, body())
        assert (status, got) == (200, said)
        assert set(headers) == {
            "date", "content-type", "content-length", "openai-version", "x-request-id",
        }  # fmt: skip
        assert (on.tokens("prompt"), on.tokens("completion")) == (5, 6)


def test_what_the_engine_is_sent() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({})

    with stage(script, keys=("secret",)) as on:
        data = body(model="alias", tools=[{"type": "function", "model": 1}], seed=2**63)
        ask(on, data, CHAT, b"Authorization: Bearer secret", b"Cookie: a=b", b"X-Request-Id: r-1",
            b"Content-Type: application/json", b"X-Forwarded-For: 1.2.3.4", b"User-Agent: me",
            b"Accept-Encoding: gzip", b"Connection: keep-alive, X-Hop", b"X-Hop: 1",
            b"traceparent: 00-1-2-3")  # fmt: skip
        (sent,) = on.upstream.requests
        assert sent.json == {**json.loads(data), "model": "m"}
        assert set(sent.headers) == {
            "host", "accept-encoding", "content-length", "content-type", "traceparent",
            "x-request-id",
        }  # fmt: skip
        assert sent.headers["x-request-id"] == "r-1"
        assert sent.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    "data",
    [
        b'{ "stream":false ,"model" : "alias", "x": 1e30,"seed":123456789012345678901234567890 }',
        b'{"model":"al\\u0069as","a":"\\"model\\": \\"alias\\""}',
    ],
)
def test_nothing_but_the_name_is_rewritten(data: bytes) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({})

    with stage(script) as on:
        assert ask(on, data)[0] == 200
        expected = data.replace(b'"alias"', b'"m"', 1).replace(b'"al\\u0069as"', b'"m"', 1)
        assert on.upstream.requests[0].body == expected


def test_a_body_whose_name_is_the_engines_is_not_touched() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({})

    with stage(script, engine_name="chat") as on:
        data = b' {"messages" : [], "model": "chat",  "model": "chat"}'
        assert ask(on, data)[0] == 200
        assert on.upstream.requests[0].body == data


def test_a_large_body_and_a_large_answer() -> None:
    async def script(exchange: Exchange) -> None:
        size = len(exchange.json["messages"][0]["content"])
        await exchange.answer({"text": "x" * size, "usage": {"prompt_tokens": size}})

    with stage(script) as on:
        content = "x" * 3_000_000
        status, _, got = ask(on, body(messages=[{"role": "user", "content": content}]))
        assert status == 200
        assert len(json.loads(got)["text"]) == len(content)
        assert on.tokens("prompt") == len(content)
        assert on.upstream.requests[0].json["model"] == "m"


def test_over_a_unix_socket(tmp_path: Path) -> None:
    with stage(whole_stream, socket=tmp_path / "s") as on:
        assert ask(on, body(stream=True))[2] == b"".join(STREAM)


@pytest.mark.parametrize(
    "path", ["/v1/completions", "/v1/responses", "/v1/messages", "/v1/rerank", "/v1/score",
             "/tokenize", "/detokenize"],
)  # fmt: skip
def test_every_route_goes_to_the_engine(path: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({"path": exchange.path})

    with stage(script) as on:
        assert json.loads(ask(on, body(), path)[2]) == {"path": path}
        until(lambda: on.status_count(200, path) == 1)
        with on.server.connect() as link:
            link.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            answer = Reader(link).answer()
        error_of(answer, 405)
        assert answer[1]["allow"] == "POST"


# Time


def test_headers_and_every_piece_come_at_once() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        for data in (b'data: {"half', b'": 1}\n\n', *TOKENS, DONE):
            await asyncio.sleep(0.15)
            await exchange.piece(data)
        await exchange.end()

    with stage(script) as on, on.server.connect() as link:
        link.sendall(request(body(stream=True)))
        file = link.makefile("rb")
        stamps = [time.monotonic()]
        while file.readline() != b"\r\n":
            pass
        stamps.append(time.monotonic())
        pieces = []
        while size := int(file.readline(), 16):
            pieces.append(file.read(size + 2)[:-2])
            stamps.append(time.monotonic())
        assert pieces == [b'data: {"half', b'": 1}\n\n', *TOKENS, DONE]
        gaps = [b - a for a, b in pairwise(stamps)]
        assert gaps[0] < 0.1
        assert all(0.08 < gap < 0.3 for gap in gaps[1:]), gaps


# The client leaves


async def _never(exchange: Exchange) -> None:
    await exchange.head()
    await exchange.piece(event(ROLE) + TOKENS[0])
    await exchange.left()


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("script", [silent, _never, endless])
def test_a_client_that_leaves_ends_the_generation(script: Script, streams: bool) -> None:
    with stage(script, tokenizes=False) as on:
        with on.server.connect() as link:
            link.sendall(request(body(stream=streams)))
            until(lambda: on.upstream.open == 1)
            time.sleep(0.3)
            at = time.monotonic()
        until(lambda: bool(on.upstream.left))
        assert on.upstream.left[0] - at < 1
        until(lambda: on.model.admitted == 0)
        until(lambda: on.status_count(499) == 1)


# Memory


def test_a_slow_client_stops_the_engine() -> None:
    sent = 0

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.head()
        piece = event(token("x" * 30_000))
        for _ in range(2000):
            await exchange.piece(piece)
            sent += len(piece)
        await exchange.piece(DONE)
        await exchange.end()

    with stage(script, tokenizes=False) as on:
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        with link:
            link.connect(("127.0.0.1", on.server.ports[0]))
            link.sendall(request(body(stream=True)))
            time.sleep(1)
            before = sent
            time.sleep(0.3)
            assert sent == before
            assert sent < 16 * 2**20
            link.settimeout(20)
            file = link.makefile("rb")
            while file.readline() != b"\r\n":
                pass
            got = 0
            while size := int(file.readline(), 16):
                got += len(file.read(size + 2)) - 2
            assert got == 2000 * len(event(token("x" * 30_000))) + len(DONE)


def test_an_event_larger_than_any_bound_passes() -> None:
    huge = event(token("é" * 3_000_000))

    async def script(exchange: Exchange) -> None:
        await exchange.stream(TOKENS[0], huge, DONE)

    with stage(script, tokenizes=False) as on:
        assert ask(on, body(stream=True))[2] == TOKENS[0] + huge + DONE
        assert on.tokens("completion") == 2
