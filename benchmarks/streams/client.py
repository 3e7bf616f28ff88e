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
_SEEN_SECONDS = 0.01

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
    """One connection; ``keep`` leaves it open for the next request."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, keep: bool = False) -> None:
        self.gone = False
        self._loop = loop
        self._keep = keep
        self.over: asyncio.Future[None] | None = None

    async def ask(self, request: bytes) -> Stream:
        """Send a request and return its whole answer."""
        over = self.over = self._loop.create_future()
        stream = self.stream = Stream(began=time.perf_counter())
        self._tail = b""
        self.transport.write(request)
        await over
        return stream

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
        if self._tail == _END and self.over is not None and not self.over.done():
            self.over.set_result(None)
            if not self._keep:
                self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._fail(f"the answer was cut: {exc}")

    def _fail(self, why: str) -> None:
        if self.over is not None and not self.over.done():
            self.over.set_exception(RuntimeError(why))
            self.transport.abort()


async def _connect(address: Address, *, keep: bool = False) -> _Reader:
    loop = asyncio.get_running_loop()

    def reader() -> _Reader:
        return _Reader(loop, keep=keep)

    if isinstance(address, int):
        return (await loop.create_connection(reader, "127.0.0.1", address))[1]
    return (await loop.create_unix_connection(reader, address))[1]


async def _all(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    async with asyncio.timeout(_TIMEOUT_SECONDS):
        readers = [await _connect(address) for _ in requests]
        return await asyncio.gather(
            *(r.ask(request) for r, request in zip(readers, requests, strict=True))
        )


def ask_at_once(address: Address, requests: Sequence[bytes]) -> list[Stream]:
    """Connect, send all requests at once, and return the whole answers.

    Raises:
        RuntimeError: one was not answered with 200, or was cut.
        TimeoutError: it took too long.
    """
    return uvloop.run(_all(address, requests))


class Clients:
    """Clients that ask by turns, here or there.

    With ``keep`` each keeps a connection to every address from turn to turn, as the pools of real
    clients do; without, each request has a new one, which is made before its time begins. The
    servers must have been asked to keep it, or not.
    """

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._kept: dict[tuple[Address, int], _Reader] = {}

    def ask(
        self, address: Address, requests: Sequence[bytes], *, each: int, stagger: float
    ) -> list[Stream]:
        """Let a client for each request ask ``each`` times, one after another.

        The clients begin ``stagger`` seconds apart. Raises as ``ask_at_once``.
        """
        return self._runner.run(self._turn(address, requests, each, stagger))

    def close(self) -> None:
        """Close what is kept."""
        self._runner.run(self._end())
        self._runner.close()

    async def _turn(
        self, address: Address, requests: Sequence[bytes], each: int, stagger: float
    ) -> list[Stream]:
        async def client(number: int) -> list[Stream]:
            await asyncio.sleep(number * stagger)
            found = []
            for _ in range(each):
                reader = await self._reader(address, number)
                found.append(await reader.ask(requests[number]))
            return found

        await asyncio.sleep(_SEEN_SECONDS)  # between turns nobody sees what a server closes
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            found = await asyncio.gather(*map(client, range(len(requests))))
        return [stream for streams in found for stream in streams]

    async def _reader(self, address: Address, number: int) -> _Reader:
        kept = self._kept.get((address, number))
        if kept is None or kept.gone or not self._keep:
            kept = self._kept[address, number] = await _connect(address, keep=self._keep)
        return kept

    async def _end(self) -> None:
        for reader in self._kept.values():
            reader.transport.abort()
