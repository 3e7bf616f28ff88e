"""Bytes to a server and back, with no client that would mend them."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterable

from running_server import Server


def connect(server: Server, seconds: float = 10) -> socket.socket:
    """Return a connection whose waits end after ``seconds``."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=seconds)


def rest(link: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    got = b""
    try:
        while part := link.recv(65536):
            got += part
    except ConnectionResetError:
        pass
    return got


def exchange(server: Server, data: bytes, *, end: bool = True) -> bytes:
    """Send ``data`` and, where ``end``, no more; return all that comes back."""
    with connect(server) as link:
        try:
            link.sendall(data)
            if end:
                link.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # refused while it was still being sent: the reason is there to be read
        return rest(link)


def answers(reply: bytes) -> list[tuple[int, bytes]]:
    """Return status and body of every answer; what is no answer fails."""
    found = []
    while reply:
        head, separator, reply = reply.partition(b"\r\n\r\n")
        assert separator, head
        lines = head.split(b"\r\n")
        match = re.fullmatch(rb"HTTP/1\.1 (\d{3}) [A-Za-z ]+", lines[0])
        assert match, lines[0]
        status = int(match[1])
        headers = dict(line.lower().split(b": ", 1) for line in lines[1:])
        length = int(headers.get(b"content-length", b"0"))
        if status != 100:
            assert b"content-length" in headers, head
            assert len(reply) >= length
            found.append((status, reply[:length]))
        reply = reply[length:]
    return found


def statuses(reply: bytes) -> list[int]:
    """Return the status of every answer."""
    return [status for status, _ in answers(reply)]


def post(*lines: bytes, body: bytes = b"", path: bytes = b"/v2/models/mlp/infer") -> bytes:
    return b"\r\n".join((b"POST %s HTTP/1.1" % path, b"Host: gateway", *lines, b"", body))


def drip(port: int, first: bytes, drops: Iterable[bytes]) -> tuple[bytes, float]:
    """Send ``first``, then one of ``drops`` every tenth of a second until the server has enough.

    Return what it said, and after how many seconds it ended the connection.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=0.1) as link:
        began = time.monotonic()
        link.sendall(first)
        got = b""
        for drop in drops:
            assert time.monotonic() - began < 15, "it is never ended"
            try:
                part = link.recv(65536)
                if not part:
                    break
                got += part
            except TimeoutError:
                pass
            except ConnectionResetError:
                break
            try:
                link.sendall(drop)
            except OSError:
                break
        return got, time.monotonic() - began
