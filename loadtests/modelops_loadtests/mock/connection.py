"""One HTTP connection: requests one after another, bytes written and stamped."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelops_loadtests.mock.whole import Whole, error_reply
from modelops_loadtests.mock.wire import Wire

if TYPE_CHECKING:
    from modelops_loadtests.mock.server import Server

_LARGEST_HEAD = 65536


@dataclass(frozen=True, slots=True)
class Request:
    """A request that is there as a whole; header names are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    arrived: float


class Connection:
    """Reads requests for a server; the next one is read when the reply before is over."""

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self._wire = Wire(sock, server.clock, self._received, self._lost)
        self.write = self._wire.send
        self._got = bytearray()
        self._answering = False
        self._came = 0.0
        self.left: Callable[[], None] | None = None
        """Called when the client leaves in the middle of a reply."""

    def _lost(self) -> None:
        if self.left is not None:
            self.left()
            self.left = None

    def _received(self, data: bytes, arrived: float) -> None:
        self._came = arrived
        self._got += data
        if not self._answering:
            self._next()

    def _next(self) -> None:
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            if len(self._got) > _LARGEST_HEAD:
                self.reset()
            return
        first, *lines = self._got[:end].decode("latin-1").split("\r\n")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        try:
            method, path, _ = first.split(" ")
            length = int(headers.get("content-length", 0))
        except ValueError:
            self.reset()
            return
        if "transfer-encoding" in headers:
            self.reply(error_reply(411, "the mock reads no chunked request"))
            self.close()
            return
        if len(self._got) < end + 4 + length:
            if headers.get("expect", "").lower() == "100-continue":
                self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            return
        body = bytes(self._got[end + 4 : end + 4 + length])
        del self._got[: end + 4 + length]
        self._answering = True
        self._server.answer(self, Request(method, path, headers, body, self._came))

    def send(self, whole: Whole, *, half: bool = False) -> None:
        """Write a whole reply, or only half of its body."""
        head = [f"HTTP/1.1 {whole.status} X", f"content-length: {len(whole.body)}"]
        head += [f"{name}: {value}" for name, value in whole.headers.items()]
        body = whole.body[: len(whole.body) // 2] if half else whole.body
        self.write("\r\n".join([*head, "\r\n"]).encode() + body)

    def reply(self, whole: Whole) -> None:
        """Write a whole reply, and read on."""
        self.send(whole)
        self.over()

    def over(self) -> None:
        """The reply is over: read on."""
        self._answering, self.left = False, None
        if self._got:
            self._next()

    def close(self) -> None:
        """Close it after what was written."""
        self.left = None
        self._wire.close()

    def reset(self) -> None:
        """Close it so that the client sees a reset."""
        self.left = None
        self._wire.reset()
