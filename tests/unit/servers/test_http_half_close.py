"""A client that sends no more gets its answers; one that has left is noticed at once."""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any

import pytest
from raw_http import GET, App, Reader, running, until

HELD = GET.replace(b"echo", b"held")
WATCHED = GET.replace(b"echo", b"watched")


def final(reader: Reader) -> tuple[int, dict[str, str], bytes]:
    """The next answer that is one."""
    while (got := reader.answer())[0] == 100:
        pass
    return got


def test_every_whole_request_is_answered_and_then_the_connection_ends(
    link: socket.socket, app: App
) -> None:
    post = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    link.sendall(HELD + post * 2 + GET)
    link.shutdown(socket.SHUT_WR)
    time.sleep(0.3)
    app.release.set()
    reader = Reader(link)
    assert final(reader)[2] == b"held"
    assert [json.loads(final(reader)[2])["method"] for _ in range(2)] == ["POST"] * 2
    status, headers, _ = final(reader)
    assert (status, headers["connection"]) == (200, "close")
    assert reader.rest() == b""


def test_what_is_not_whole_is_dropped_and_those_before_it_answered(
    link: socket.socket, app: App
) -> None:
    for rest in (GET[:-3], b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"):
        with socket.create_connection(link.getpeername()) as other:
            app.release.clear()
            other.sendall(HELD + rest)
            other.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            app.release.set()
            reader = Reader(other)
            assert final(reader)[2] == b"held"
            assert reader.rest() == b""


def test_a_body_that_is_cut_short_is_a_client_that_left(link: socket.socket, app: App) -> None:
    link.sendall(b"POST /watched HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
    link.shutdown(socket.SHUT_WR)
    until(lambda: app.events == ["left"])
    assert Reader(link).rest() == b""


def test_one_that_only_sends_no_more_is_not_taken_for_gone_however_long_it_takes(
    link: socket.socket, app: App
) -> None:
    link.sendall(WATCHED)
    link.shutdown(socket.SHUT_WR)
    time.sleep(1.5)
    assert app.events == []
    link.close()
    until(lambda: app.events == ["left"])


@pytest.mark.parametrize("first", ["closes", "half-closes and closes", "resets"])
def test_one_that_leaves_is_noticed_in_a_moment(link: socket.socket, app: App, first: str) -> None:
    link.sendall(WATCHED)
    time.sleep(0.1)
    began = time.monotonic()
    if first == "half-closes and closes":
        link.shutdown(socket.SHUT_WR)
    if first == "resets":
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    link.close()
    until(lambda: app.events == ["left"])
    assert time.monotonic() - began < 0.3


def test_http_1_0_cannot_be_asked_and_counts_as_gone(link: socket.socket, app: App) -> None:
    link.sendall(b"GET /watched HTTP/1.0\r\n\r\n")
    link.shutdown(socket.SHUT_WR)
    until(lambda: app.events == ["left"])
    assert Reader(link).rest() == b""


@pytest.mark.parametrize("path", [b"whole", b"large"])
def test_an_answer_that_has_begun_is_finished(link: socket.socket, path: bytes) -> None:
    link.sendall(GET.replace(b"echo", path))
    assert link.recv(1) == b"H"
    link.shutdown(socket.SHUT_WR)
    size = 0
    while part := link.recv(2**20):
        size += len(part)
    assert size > 2**26


class Silent(App):
    """Begins a stream and has nothing to say in it."""

    async def begun(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.events.append("left")


@pytest.mark.parametrize("leave", [socket.socket.close, lambda s: s.shutdown(socket.SHUT_WR)])
def test_a_stream_cannot_ask_its_client_and_ends_at_once(leave: Any) -> None:
    app = Silent()
    with running(app) as server, server.connect() as link:
        link.sendall(GET.replace(b"echo", b"begun"))
        assert link.recv(12) == b"HTTP/1.1 200"
        leave(link)
        until(lambda: app.events == ["left"])


def test_s1_a_client_that_pipelined_and_left_is_noticed(link: socket.socket, app: App) -> None:
    link.sendall(WATCHED)
    time.sleep(0.2)
    link.sendall(GET)
    time.sleep(0.1)
    assert app.events == []
    link.close()
    until(lambda: app.events == ["left"])
