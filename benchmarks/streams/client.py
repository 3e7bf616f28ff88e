"""The one client of all contenders: raw sockets, and the moment at which each piece came."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uvloop

_END = b"\r\n0\r\n\r\n"
_OK = b"HTTP/1.1 200"
_TIMEOUT_SECONDS = 300

Address = int | str
"""A port of this machine, or the path of a unix socket."""


@dataclass
class Stream:
    """One answer: its pieces, and when each was there; seconds of ``time.perf_counter``."""

    began: float = 0.0
    pieces: list[bytes] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    @property
    def answer(self) -> bytes:
        """All of it, head and framing included."""
        return b"".join(self.pieces)


class _Reader(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.over: asyncio.Future[None] = loop.create_future()
        self.stream = Stream()
        self._tail = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        stream = self.stream
        if not stream.pieces and not data.startswith(_OK):
            self._fail(f"answered with {data[:500]!r}")
            return
        stream.times.append(now)
        stream.pieces.append(data)
        self._tail = data[-len(_END) :] if len(data) >= len(_END) else (self._tail + data)[-7:]
        if self._tail == _END and not self.over.done():
            self.over.set_result(None)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self._fail(f"the answer was cut after {len(self.stream.pieces)} pieces: {exc}")

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(why))
        self.transport.abort()


async def _ask(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    loop = asyncio.get_running_loop()

    def reader() -> _Reader:
        return _Reader(loop)

    made = []
    for _ in requests:
        if isinstance(address, int):
            made.append((await loop.create_connection(reader, "127.0.0.1", address))[1])
        else:
            made.append((await loop.create_unix_connection(reader, address))[1])
    for one, request in zip(made, requests, strict=True):
        one.stream.began = time.perf_counter()
        one.transport.write(request)
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        await asyncio.gather(*(one.over for one in made))
    return [one.stream for one in made]


def ask(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    """Connect, send all requests at once, and return the whole answers.

    Raises:
        RuntimeError: one was not answered with 200, or was cut.
        TimeoutError: it took too long.
    """
    return uvloop.run(_ask(address, requests))
