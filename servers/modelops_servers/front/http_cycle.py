"""One request on an HTTP/1.1 connection and its answer, as an ASGI application sees them."""

from __future__ import annotations

import asyncio
import http
import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from modelops_servers.front.http_protocol import HttpProtocol

# A body up to this size is sent in one piece with its head; a larger one is never copied.
_JOINED_BYTES = 64 * 1024
_DISCONNECT = {"type": "http.disconnect"}
_NO_BODY = (204, 304)
_STATUS_LINE = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in http.HTTPStatus}
_FAILED = b'{"error":"internal error; the server\'s log has it"}'
_FAILED_HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(_FAILED)).encode()),
    (b"connection", b"close"),
]

_log = logging.getLogger(__name__)


class HttpCycle:
    """Calling it is ASGI's ``receive``; ``send`` is ASGI's.

    The first call never waits: it gives what has arrived of the body, which may be nothing yet, so
    that whoever reads a body that is here already needs no timer.
    """

    __slots__ = (
        "_chunked",
        "_connection",
        "_delivered",
        "_expect",
        "_head",
        "_head_only",
        "_left",
        "_lines",
        "_started",
        "_waiting",
        "chunks",
        "complete",
        "disconnected",
        "keep_alive",
        "old",
        "pending",
        "task",
        "whole",
    )

    def __init__(
        self,
        connection: HttpProtocol,
        *,
        head_only: bool,
        expect: bool,
        keep_alive: bool,
        old: bool,
    ) -> None:
        """``expect``: the client waits for "100 Continue"; ``old``: it speaks HTTP/1.0."""
        self._connection = connection
        self._head_only = head_only
        self._expect = expect
        self.old = old
        self.keep_alive = keep_alive
        self.task: asyncio.Task[None] | None = None
        # The request: ``whole`` once its last byte is here.
        self.chunks: list[bytes] = []
        self.pending = 0
        self.whole = False
        self._delivered: bool | None = None
        # The answer: ``complete`` once its last byte is with the transport.
        self._started = False
        self.complete = False
        self.disconnected = False
        self._head = b""
        self._left: int | None = None  # of a body whose length was said
        self._chunked = False
        self._waiting: asyncio.Event | None = None

    async def run(self, app: Any, scope: MutableMapping[str, Any]) -> None:
        """Let ``app`` answer; whatever it does, the client gets an end."""
        try:
            await app(scope, self, self.send)
            if not (self.complete or self.disconnected):
                raise RuntimeError("the application returned before its answer was whole")
        except Exception:  # noqa: BLE001 - whatever it is, the client gets an answer
            _log.exception("the application failed")
            if not self.started:
                self._started, self._head = False, b""
                await self.send(
                    {"type": "http.response.start", "status": 500, "headers": _FAILED_HEADERS}
                )
                await self.send({"type": "http.response.body", "body": _FAILED})
        finally:
            self._connection.ended(self)

    @property
    def started(self) -> bool:
        """Whether a part of the answer is on its way."""
        return self._started and not self._head

    @property
    def streaming(self) -> bool:
        """Whether a part of an answer of unknown length is on its way."""
        return self.started and self._left is None

    def wake(self) -> None:
        """Let ``receive`` look again: something came, or nothing more will."""
        if self._waiting is not None:
            self._waiting.set()

    async def __call__(self) -> MutableMapping[str, Any]:
        """ASGI's ``receive``."""
        if self._expect:
            self._expect = False
            if not (self._started or self.disconnected):
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        first = self._delivered is None
        while not (self.disconnected or self.complete):
            if first or self.chunks or (self.whole and not self._delivered):
                return self._message()
            await self._wait()
        return _DISCONNECT.copy()

    def _message(self) -> MutableMapping[str, Any]:
        chunks = self.chunks
        if chunks:
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            self.chunks = []
            self.pending = 0
        else:
            body = b""
        self._delivered = self.whole
        return {"type": "http.request", "body": body, "more_body": not self.whole}

    async def _wait(self) -> None:
        self._connection.resume_reading()
        if self._waiting is None:
            self._waiting = asyncio.Event()
        self._waiting.clear()
        await self._waiting.wait()

    async def fill(self, view: memoryview) -> int:
        """Receive the rest of a body with Content-Length straight into ``view``, of just its size.

        Returns how many bytes came: fewer than asked only when the client left. When it is
        cancelled, nothing is written to ``view`` any more, and the connection ends with the
        answer.
        """
        size = 0
        for chunk in self.chunks:
            view[size : size + len(chunk)] = chunk
            size += len(chunk)
        self.chunks = []
        self.pending = 0
        if not (self.whole or self.disconnected):
            filling = self._connection.fill(view[size:])
            try:
                while not (self.whole or self.disconnected):
                    await self._wait()
            finally:
                size += filling.stop()
        self._delivered = self.whole
        return size

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """ASGI's ``send``."""
        if self._connection.writable is not None and not self.disconnected:
            await self._connection.writable.wait()
        if self.disconnected:
            return
        if not self._started:
            self._start(message["status"], message.get("headers", ()))
            return
        if self.complete:
            raise RuntimeError("a message after the end of the answer")
        more = message.get("more_body", False)
        self._write(message.get("body", b""), more)
        if not more:
            if self._left:
                raise RuntimeError(f"the answer is {self._left} bytes shorter than it said")
            self.complete = True
            self.wake()
            self._connection.answered(self)

    def _start(self, status: int, headers: Any) -> None:
        parts = [_STATUS_LINE[status], self._connection.state.date]
        lines = 2
        length: int | None = None
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                # Framing and persistence are this side's; only the wish to close is heard.
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
                continue
            elif name == b"transfer-encoding":
                continue
            parts += (name, b": ", value, b"\r\n")
            lines += 1
        if self._head_only or status in _NO_BODY:
            length = 0
        elif length is None:
            # Before HTTP/1.1 only the end of the connection can end a body of unknown length.
            self.keep_alive = self.keep_alive and not self.old
            self._chunked = not self.old
            if self._chunked:
                parts.append(b"transfer-encoding: chunked\r\n")
                lines += 1
        if not self.keep_alive:
            parts.append(b"connection: close\r\n")
            lines += 1
        head = b"".join(parts)
        if head.count(b"\n") != lines or head.count(b"\r") != lines:
            raise RuntimeError("a header of the answer holds a line break")
        self._started = True
        self._left = length
        self._head = head + b"\r\n"
        if length is None:
            # A stream's first byte may be long in coming; its status must not be.
            self._connection.transport.write(self._head)
            self._head = b""

    def _write(self, body: bytes | memoryview, more: bool) -> None:
        size = len(body)
        if self._head_only:
            body = b""
        elif self._chunked:
            end = b"" if more else b"0\r\n\r\n"
            body = b"".join((b"%x\r\n" % size, body, b"\r\n", end)) if size else end
        elif self._left is not None:
            if size > self._left:
                raise RuntimeError(f"the answer is {size - self._left} bytes longer than it said")
            self._left -= size
        head, self._head = self._head, b""
        transport = self._connection.transport
        if len(body) <= _JOINED_BYTES:
            transport.write(b"".join((head, body)))
        else:
            if head:
                transport.write(head)
            transport.write(body)
