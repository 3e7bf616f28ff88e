"""What the token path says when it cannot answer, before the first byte and after it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from raw_http import until
from scripted_upstream import (
    DONE,
    STREAM,
    TOKENS,
    Exchange,
    Script,
    endless,
    event,
    silent,
)
from text_models import CHAT, ask, body, error_of, stage

from modelops_servers.front.openai.settings import UpstreamSettings

IMPATIENT = UpstreamSettings(first_byte_seconds=0.4, idle_seconds=0.4)


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
        (body(max_tokens=-(10**12)), "max_tokens"),
        (body(max_tokens="5"), "max_tokens"),
        (body(n="16384"), "n"),
        (body(n=16384.0), "n"),
        (body(best_of=True), "best_of"),
        (body(stream=1), "stream"),
        (body(stream="yes"), "stream"),
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
    with stage(endless, limits={"request_seconds": 0.5}, tokenizes=False) as on:
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
