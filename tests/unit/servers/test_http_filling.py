"""A body that goes from the socket straight into the memory where it is wanted."""

from __future__ import annotations

import contextlib
import socket
import time

import numpy as np
import pytest
from raw_http import GET, App, Reader, until


def body_of(size: int) -> bytes:
    return np.random.default_rng(1).integers(0, 256, size, np.uint8).tobytes()


def post_into(size: int) -> bytes:
    return b"POST /into HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size


@pytest.mark.parametrize("size", [1, 1000, 262_143, 262_144, 600_000, 20_000_000])
def test_a_body_comes_into_the_memory_it_was_given(link: socket.socket, size: int) -> None:
    reader = Reader(link)
    body = body_of(size)
    expected = int(np.frombuffer(body, np.uint8).sum(dtype=np.int64))
    for together in (True, False):
        head = post_into(size)
        if together:
            link.sendall(head + body + GET)
        else:
            link.sendall(head)
            time.sleep(0.02)
            link.sendall(body[: size // 3])
            time.sleep(0.02)
            link.sendall(body[size // 3 :] + GET)
        assert reader.json() == {"sum": expected}
        assert reader.json()["path"] == "/echo"


def test_h15_a_body_that_is_late_is_let_go_and_its_memory_left_alone(
    link: socket.socket, app: App
) -> None:
    link.sendall(post_into(10_000_000) + b"\x01" * 400_000)
    reader = Reader(link)
    status, headers, body = reader.answer()
    assert (status, headers["connection"], body) == (408, "close", b"slow")
    assert sum(app.views[0]) == 400_000
    with contextlib.suppress(OSError):
        link.sendall(b"\x02" * 400_000)
    time.sleep(0.1)
    assert sum(app.views[0]) == 400_000


def test_a_client_that_leaves_within_its_body_is_noticed(link: socket.socket, app: App) -> None:
    link.sendall(post_into(10_000_000) + b"\x01" * 1_000_000)
    until(lambda: bool(app.views))
    link.close()
    until(lambda: app.events == ["left"])
