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
from typing import Any

import pytest
import requests
from raw_http import Reader, until
from scripted_upstream import DONE, ROLE, STOP, Exchange, Script, event, silent, token, usage
from text_models import Stage, stage

from modelops_servers.front.openai.settings import UpstreamSettings

CHAT = "/v1/chat/completions"
TOKENS = [event(token(t)) for t in ("日本", "語", "🙂", "ok")]
STREAM = [event(ROLE), *TOKENS, event(STOP), DONE]
IMPATIENT = UpstreamSettings(first_byte_seconds=0.4, idle_seconds=0.4)


def body(**fields: Any) -> bytes:
    whole = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(whole).encode()


def request(data: bytes, path: str = CHAT, *lines: bytes) -> bytes:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (path.encode(), len(data))
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + data


def ask(on: Stage, data: bytes, path: str = CHAT, *lines: bytes) -> tuple[int, Any, bytes]:
    """One request on a connection of its own; its status, headers and body."""
    with on.server.connect() as link:
        link.sendall(request(data, path, *lines))
        return Reader(link).answer()


def error_of(answer: tuple[int, Any, bytes], status: int) -> dict[str, Any]:
    """The answer is an error in OpenAI's form."""
    assert answer[0] == status, answer
    assert answer[1]["content-type"] == "application/json"
    error: dict[str, Any] = json.loads(answer[2])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def whole_stream(exchange: Exchange) -> None:
    if exchange.path == "/tokenize":
        await exchange.answer({"count": 11, "max_model_len": 4096, "tokens": [1] * 11})
    else:
        await exchange.stream(*STREAM)


def test_a_front_without_a_text_model_loads_no_client() -> None:
    code = (
        "import sys, modelops_servers.front.app, modelops_servers.front.openai.endpoint; "
        "print('aiohttp' in sys.modules)"
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
        assert on.status_count(200) == 1


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
        assert on.status_count(200, path) == 1
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


async def _endless(exchange: Exchange) -> None:
    await exchange.head()
    while True:
        await exchange.piece(TOKENS[0])
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("script", [silent, _never, _endless])
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
        assert on.status_count(499) == 1


# Failures


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b"{", "body"),
        (b'{"model": 1}', "model"),
        (b"{}", "model"),
        (body(n=10**9), "n"),
        (body(best_of=129), "best_of"),
        (body(max_tokens=4097), "max_tokens"),
        (body(max_completion_tokens=10**12), "max_tokens"),
    ],
)
def test_what_cannot_be_right_never_reaches_the_engine(data: bytes, param: str) -> None:
    with stage(silent) as on:
        assert error_of(ask(on, data), 400)["param"] == param
        assert on.upstream.requests == []


_URLS = ["http://127.0.0.1/x", "HTTPS://169.254.169.254/", "file:///etc/passwd", " http://x", "//x"]


@pytest.mark.parametrize("url", _URLS)
@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "URL"}},
        {"type": "image_url", "image_url": "URL"},
        {"type": "video_url", "video_url": {"url": "URL"}},
        {"type": "audio_url", "audio_url": {"url": "URL"}},
        {"type": "input_image", "image_url": "URL"},
        {"type": "image", "source": {"type": "url", "url": "URL"}},
    ],
)
def test_no_engine_fetches_for_a_client(part: dict[str, Any], url: str) -> None:
    text = body(messages=[{"role": "user", "content": [part]}]).decode()
    for data in (text.replace("URL", url), text.replace("URL", url).replace("_url", "\\u005furl")):
        with stage(silent) as on:
            assert "data:" in error_of(ask(on, data.encode()), 400)["message"]
            assert on.upstream.requests == []


def test_media_in_the_request_and_schemas_pass() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({})

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    schema = {"properties": {"image_url": {"type": "string", "url": "http://x"}}}
    with stage(script) as on:
        data = body(
            messages=[{"role": "user", "content": [picture, {"type": "text", "text": "http://x"}]}],
            tools=[{"type": "function", "function": {"name": "f", "parameters": schema}}],
        )
        assert ask(on, data)[0] == 200
        assert error_of(ask(on, body(tools=[{"type": "mcp", "server_url": "http://x"}])), 400)


def test_a_model_that_is_not_served() -> None:
    with stage(silent) as on:
        error = error_of(ask(on, body(model="../x")), 404)
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert on.value("modelops_request_duration_seconds_count", route=CHAT, status="404") == 0


def test_no_seat_left() -> None:
    with stage(silent, most=0) as on:
        answer = ask(on, body())
        assert error_of(answer, 503)["type"] == "overloaded_error"
        assert answer[1]["retry-after"] == "7"
        assert on.model.left == []


def test_without_a_key() -> None:
    with stage(silent, keys=("k",)) as on:
        for path in (CHAT, "/tokenize"):
            assert error_of(ask(on, body(), path), 401)["code"] == "invalid_api_key"


def test_a_body_over_the_limit() -> None:
    with stage(silent, limits={"max_json_mb": 0.001}) as on:
        error_of(ask(on, body(x="x" * 2000)), 413)


def test_an_engine_that_is_not_there() -> None:
    with stage(silent) as on:
        on.upstream.stop()
        answer = ask(on, body(stream=True))
        assert error_of(answer, 503)["type"] == "not_ready_error"
        assert int(answer[1]["retry-after"]) > 0
        assert on.tokens("prompt") == 0


async def _reset(exchange: Exchange) -> None:
    exchange.reset()


async def _reset_in_a_body(exchange: Exchange) -> None:
    await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
    exchange.reset()


async def _redirect(exchange: Exchange) -> None:
    await exchange.answer({}, 307, b"Location: http://127.0.0.1:1/")


async def _html(exchange: Exchange) -> None:
    await exchange.answer(b"<html>oops</html>", 500, b"Content-Type: text/html")


async def _no_key(exchange: Exchange) -> None:
    await exchange.answer({"error": {"message": "Incorrect API key", "type": "x"}}, 401)


@pytest.mark.parametrize("script", [_reset, _reset_in_a_body, _redirect, _html, _no_key])
def test_an_engine_that_fails_before_the_first_byte(script: Script) -> None:
    with stage(script, tokenizes=False) as on:
        error = error_of(ask(on, body()), 502)
        assert error["type"] == "engine_error"
        assert "oops" not in error["message"]
        assert "Incorrect" not in error["message"]
        assert on.model.admitted == 0


def test_silence_is_a_deadline() -> None:
    with stage(silent, settings=IMPATIENT) as on:
        assert error_of(ask(on, body(stream=True)), 504)["type"] == "timeout_error"
        until(lambda: bool(on.upstream.left))
    with stage(silent, limits={"request_seconds": 0.4}) as on:
        error_of(ask(on, body()), 504)
        until(lambda: bool(on.upstream.left))


_TOO_LONG = {
    "error": {"message": "maximum context length is 4096", "type": "BadRequestError",
              "param": None, "code": 400}
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "seen"), [(400, 400), (404, 404), (422, 422), (429, 429), (500, 502), (503, 503)]
)
def test_an_engines_error_passes_as_it_is(status: int, seen: int) -> None:
    said = json.dumps(_TOO_LONG).encode() + b" "

    async def script(exchange: Exchange) -> None:
        await exchange.answer(said, status)

    with stage(script) as on:
        got = ask(on, body(stream=True))
        assert (got[0], got[2]) == (seen, said)
        assert ("retry-after" in got[1]) == (status in (429, 503))
        assert len(on.upstream.requests) == 1
        assert on.tokens("prompt") == 0


@pytest.mark.parametrize(
    ("status", "seen"), [(400, 400), (404, 404), (413, 413), (422, 400), (503, 503), (504, 504)]
)
def test_an_engines_error_in_another_form_is_said_in_ours(status: int, seen: int) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({"detail": "what it was"}, status)

    with stage(script) as on:
        assert "what it was" in error_of(ask(on, body()), seen)["message"]


def in_band(got: bytes, before: bytes) -> dict[str, Any]:
    """The stream is ``before`` and one error event, and does not end as a success."""
    assert got.startswith(before)
    assert b"[DONE]" not in got
    last = got[len(before) :].strip()
    assert last.startswith(b"data: ")
    error: dict[str, Any] = json.loads(last[6:])["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def _three_and_reset(exchange: Exchange) -> None:
    await exchange.head()
    for data in STREAM[:4]:
        await exchange.piece(data)
    await asyncio.sleep(0.05)
    exchange.reset()


async def _three_and_end(exchange: Exchange) -> None:
    await exchange.stream(*STREAM[:4])


async def _three_and_silence(exchange: Exchange) -> None:
    await exchange.head()
    for data in STREAM[:4]:
        await exchange.piece(data)
    await exchange.left()


async def _three_and_garbage(exchange: Exchange) -> None:
    await exchange.head()
    for data in STREAM[:4]:
        await exchange.piece(data)
    await asyncio.sleep(0.05)
    await exchange.send(b"!!!\r\n")
    await exchange.left()


@pytest.mark.parametrize(
    ("script", "kind", "status"),
    [
        (_three_and_reset, "engine_error", 502),
        (_three_and_end, "engine_error", 502),
        (_three_and_silence, "timeout_error", 504),
        (_three_and_garbage, "engine_error", 502),
    ],
)
def test_a_failure_after_the_first_byte_is_said_in_the_stream(
    script: Script, kind: str, status: int
) -> None:
    with stage(script, settings=UpstreamSettings(idle_seconds=1), tokenizes=False) as on:
        got = ask(on, body(stream=True))
        assert got[0] == 200
        error = in_band(got[2], b"".join(STREAM[:4]))
        assert (error["type"], error["code"]) == (kind, status)
        until(lambda: on.status_count(status) == 1)
        assert on.tokens("completion") == 3
        assert on.model.admitted == 0


def test_the_deadline_in_the_middle_of_a_stream() -> None:
    with stage(_endless, limits={"request_seconds": 0.5}, tokenizes=False) as on:
        got = ask(on, body(stream=True))
        count = got[2].count(TOKENS[0])
        assert in_band(got[2], TOKENS[0] * count)["type"] == "timeout_error"
        until(lambda: bool(on.upstream.left))


def test_half_an_event_is_set_apart_from_the_error() -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.piece(TOKENS[0] + TOKENS[1][:20])
        await asyncio.sleep(0.05)
        exchange.reset()

    with stage(script, tokenizes=False) as on:
        got = ask(on, body(stream=True))[2]
        assert in_band(got, TOKENS[0] + TOKENS[1][:20] + b"\n\n")["type"] == "engine_error"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
def test_a_failure_in_protocols_that_name_their_events(path: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.head()
        await exchange.piece(b'event: ping\ndata: {"type":"ping"}\n\n')
        await asyncio.sleep(0.05)
        exchange.reset()

    with stage(script, tokenizes=False) as on:
        got = ask(on, body(stream=True), path)[2]
        assert got.startswith(b'event: ping\ndata: {"type":"ping"}\n\nevent: error\ndata: ')
        said = json.loads(got.rsplit(b"data: ", 1)[1])
        assert said["type"] == "error"
        assert said["error"]["type"] == "engine_error"


def test_the_engines_own_error_passes_and_is_counted_as_one() -> None:
    said = [TOKENS[0], event('{"error":{"message":"it died","code":500}}'), DONE]

    async def script(exchange: Exchange) -> None:
        await exchange.stream(*said)

    with stage(script, tokenizes=False) as on:
        assert ask(on, body(stream=True))[2] == b"".join(said)
        until(lambda: on.status_count(502) == 1)
        assert on.status_count(200) == 0


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


# Usage


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
        else:
            await exchange.head()
            await exchange.piece(event(ROLE) + TOKENS[0] + TOKENS[1])
            await exchange.left()

    with stage(script) as on:
        with on.server.connect() as link:
            link.sendall(request(body(stream=streams)))
            until(lambda: on.upstream.open == 1)
            time.sleep(0.3)
        until(lambda: on.tokens("prompt") == 11)
        assert on.tokens("completion") == 2


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
