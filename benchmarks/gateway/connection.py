"""A keep-alive connection over a plain socket: large bodies in and out at little cost."""

from __future__ import annotations

import socket
import time
from types import TracebackType
from urllib.parse import urlsplit

from gateway.bodies import Body

_TIMEOUT_SECONDS = 60
_HEAD = 65536


class Connection:
    """One connection, one request at a time."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host = f"{parts.hostname}:{parts.port}"
        self._socket = socket.create_connection((parts.hostname, parts.port), _TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_HEAD)

    def head(self, path: str, body: Body) -> bytes:
        """Return the request's headers."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._host}"]
        headers = {"Content-Length": str(len(body.data)), **body.headers}
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    def ask(self, path: str, body: Body) -> tuple[int, memoryview]:
        """Send one request; return the status and the answer's body, valid until the next."""
        self.send(self.head(path, body), body.data)
        return self.receive()

    def send(self, *parts: bytes) -> None:
        """Send bytes as they are."""
        for part in parts:
            self._socket.sendall(part)

    def receive(self) -> tuple[int, memoryview]:
        """Read one answer."""
        filled, end = 0, -1
        while end < 0:
            got = self._socket.recv_into(memoryview(self._buffer)[filled:_HEAD])
            if not got:
                raise ConnectionError("the server closed the connection before its answer")
            filled += got
            end = self._buffer.find(b"\r\n\r\n", 0, filled)
        head = bytes(self._buffer[:end])
        start = end + 4
        total = start + _content_length(head)
        if total > len(self._buffer):
            self._buffer.extend(bytes(total - len(self._buffer)))
        view = memoryview(self._buffer)
        while filled < total:
            got = self._socket.recv_into(view[filled:total])
            if not got:
                raise ConnectionError("the server closed the connection in its answer")
            filled += got
        return int(head[9:12]), view[start:total]

    def close(self) -> None:
        """Leave, also in the middle of a request."""
        self._socket.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def probe(url: str, path: str, body: Body, *, rate: float, seconds: float) -> list[float]:
    """Ask ``rate`` times a second; return seconds from each scheduled moment to its answer.

    A moment that passes while an answer is awaited is not sent late, which would make a queue of
    the probe's own; it counts as answered with the one awaited, for it would have waited as long.
    """
    latencies = []
    with Connection(url) as connection:
        connection.ask(path, body)
        began = time.perf_counter()
        number = 0
        while number < rate * seconds:
            due = began + number / rate
            if (early := due - time.perf_counter()) > 0:
                time.sleep(early)
            status, _ = connection.ask(path, body)
            if status != 200:
                raise SystemExit(f"the probe was answered with {status}")
            answered = time.perf_counter()
            while due <= answered:
                latencies.append(answered - due)
                number += 1
                due = began + number / rate
    return latencies


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise ConnectionError("an answer without Content-Length")
