"""How late an event loop's timers are while something else goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

TICK = 0.001
STALL = 0.020
"""More than this, in seconds, others would feel."""


class Ticker:
    """How long a 1 ms timer of this loop was late at worst, less what other processes took.

    The kernel says how long this thread was ready but had no core: on a shared machine that can
    be any time, and it is not the doing of what is measured.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._file = Path("/proc/thread-self/schedstat").open()  # noqa: SIM115

    async def __aenter__(self) -> Ticker:
        self._task = asyncio.create_task(self._run())
        await asyncio.sleep(0.02)
        self.worst = 0.0
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.sleep(0.02)
        self._task.cancel()
        self._file.close()

    async def _run(self) -> None:
        while True:
            queued, began = self._queued(), time.perf_counter()
            await asyncio.sleep(TICK)
            late = time.perf_counter() - began - TICK - (self._queued() - queued)
            self.worst = max(self.worst, late)

    def _queued(self) -> float:
        self._file.seek(0)
        return int(self._file.read().split()[1]) / 1e9


async def stalls(work: Callable[[], Awaitable[None]], tries: int = 3) -> list[float]:
    """Return the longest stall of each of up to ``tries`` runs, the last of them a short one."""
    worst = []
    for _ in range(tries):
        async with Ticker() as ticker:
            await work()
        worst.append(ticker.worst)
        if ticker.worst < STALL:
            break
    return worst
