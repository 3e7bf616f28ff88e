"""One HTTP/1.1 connection to a text engine: requests one after another, answers in pieces.

httptools parses; a general client takes three times as long for a request, which is time to the
first token. What waits for a slow reader is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import httptools

MAX_HEAD_BYTES = 64 * 1024
"""Most bytes of an answer's status and headers together."""

# As much is copied to be sent in one write; of a larger body no copy is made.
_JOINED_BYTES = 64 * 1024
_NO_BODY = (204, 304)


class BrokenError(Exception):
    """The connection is of no more use; the text says why."""


class Connection(asyncio.Protocol):
    """Send, wait for the ``head``, read until nothing comes; then, if it is ``reusable``, again."""

    def __init__(self, read_bytes: int) -> None:
        """Read on until ``2 * read_bytes`` wait to be taken."""
        self.transport: asyncio.Transport
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        """Of the answer, names in lower case."""
        self.untouched = True
        """Whether nothing at all has come since the request was sent."""
        self.reused = False
        """Whether this is not the connection's first request."""
        self._high_water = 2 * read_bytes
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._waiting = 0  # bytes in pieces
        self._paused = False
        self._open = False  # an answer is awaited or on its way
        self._in_head = False
        self._head_bytes = 0
        self._to_the_end = False  # the body has no length, and ends with the connection
        self._whole = False
        self._keep = False
        self._broken: str | None = None  # why, once it is
        self._waiter: asyncio.Future[None] | None = None

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent."""
        return (
            not self._open
            and self._keep
            and self._broken is None
            and not self.transport.is_closing()
            and not self.transport.get_write_buffer_size()
        )

    def send(self, head: bytes, body: bytes | memoryview) -> None:
        """Begin a request; the body must not change until its answer is there."""
        self.status = 0
        self.headers = []
        self.untouched = self._open = self._in_head = True
        self._to_the_end = self._whole = self._keep = False
        self._head_bytes = 0
        if len(body) <= _JOINED_BYTES:
            self.transport.write(b"".join((head, body)))
        else:
            self.transport.write(head)
            self.transport.write(body)

    async def head(self) -> None:
        """Wait for the answer's ``status`` and ``headers``.

        Raises:
            BrokenError: the connection ended, or what came is no HTTP.
        """
        while self._in_head:
            await self._more()

    async def read(self) -> bytes:
        """Return the bytes of the body that have come, at least one; none at the end.

        Raises:
            BrokenError: as ``head``; all that had come before was read.
        """
        while True:
            if self._pieces:
                return self._take()
            if self._whole:
                self._open = False
                return b""
            await self._more()

    def abort(self, why: str = "it was given up") -> None:
        """Close now, without sending what the engine has not read yet."""
        self._break(why)

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def connection_lost(self, exc: Exception | None) -> None:
        """End an answer that ends so; any other is broken."""
        self._keep = False
        if self._to_the_end and exc is None and self._broken is None:
            self._whole = True
            self._wake()
        elif not self._whole:
            self._break("it closed the connection" if exc is None else str(exc) or repr(exc))

    def data_received(self, data: bytes) -> None:
        """Parse."""
        if self._broken is not None:
            return
        if not self._open or self._whole:
            self._break("it sent what nobody asked for")
            return
        self.untouched = False
        if self._in_head:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._break("it would speak another protocol")
        except httptools.HttpParserError as error:
            self._break(f"it sent what is no HTTP: {error}")
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES:
            self._break(f"its headers are over {MAX_HEAD_BYTES} bytes")
        if self._waiting > self._high_water and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    # The parser's calls

    def on_message_begin(self) -> None:
        """Refuse a second answer to one request."""
        if not self._in_head:
            self._keep = False
            self.transport.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; of a trailer nobody is told."""
        if self._in_head:
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Let ``head`` return, unless this only says that the answer is to come."""
        if self._whole:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self.headers = []
            return
        self.status = status
        self._in_head = False
        self._to_the_end = status not in _NO_BODY and not _framed(self.headers)

    def on_body(self, body: bytes) -> None:
        """Keep a piece until it is read."""
        if not self._whole:
            self._pieces.append(body)
            self._waiting += len(body)

    def on_message_complete(self) -> None:
        """End the answer; an announcement of one ends too, and is none."""
        if not (self._in_head or self._whole):
            self._whole = True
            self._keep = self._parser.should_keep_alive()

    # Within

    def _take(self) -> bytes:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._waiting = 0
        if self._paused:
            self._paused = False
            if not self.transport.is_closing():
                self.transport.resume_reading()
        return data

    async def _more(self) -> None:
        if self._broken is not None:
            raise BrokenError(self._broken)
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        waiter: asyncio.Future[None] | None = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _break(self, why: str) -> None:
        if self._broken is None:
            self._broken = why[:256]
        self._wake()
        self.transport.abort()


def _framed(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a body says where it ends."""
    return any(
        name == b"content-length" or (name == b"transfer-encoding" and b"chunked" in value.lower())
        for name, value in headers
    )


def connected(pair: tuple[Any, Any]) -> Connection:
    """Return the protocol of what a loop's ``create_connection`` returns."""
    return cast("Connection", pair[1])
