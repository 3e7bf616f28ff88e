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
    """Just before the request's bytes were written."""
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
        self._tail = (self._tail + data[-len(_END) :])[-len(_END) :]
        if self._tail == _END and not self.over.done():
            self.over.set_result(None)
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the answer was cut after {len(self.stream.pieces)} pieces: {exc}")

    def _fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(why))
            self.transport.abort()


async def _connect(address: Address) -> _Reader:
    loop = asyncio.get_running_loop()

    def reader() -> _Reader:
        return _Reader(loop)

    if isinstance(address, int):
        return (await loop.create_connection(reader, "127.0.0.1", address))[1]
    return (await loop.create_unix_connection(reader, address))[1]


async def _read(reader: _Reader, request: bytes) -> Stream:
    reader.stream.began = time.perf_counter()
    reader.transport.write(request)
    await reader.over
    return reader.stream


async def _all(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        readers = [await _connect(address) for _ in requests]
        return await asyncio.gather(*map(_read, readers, requests))


async def _clients(
    address: Address, requests: Sequence[bytes], each: int, stagger: float
) -> list[Stream]:
    async def client(number: int) -> list[Stream]:
        await asyncio.sleep(number * stagger)
        return [await _read(await _connect(address), requests[number]) for _ in range(each)]

    async with asyncio.timeout(_TIMEOUT_SECONDS):
        found = await asyncio.gather(*map(client, range(len(requests))))
    return [stream for streams in found for stream in streams]


def ask_at_once(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    """Connect, send all requests at once, and return the whole answers.

    Raises:
        RuntimeError: one was not answered with 200, or was cut.
        TimeoutError: it took too long.
    """
    return uvloop.run(_all(address, requests))


def ask_by_turns(
    address: Address, requests: Sequence[bytes], *, each: int, stagger: float
) -> list[Stream]:
    """Let a client for each request ask ``each`` times, one after another.

    The clients begin ``stagger`` seconds apart. Raises as ``ask_at_once``.
    """
    return uvloop.run(_clients(address, requests, each, stagger))
