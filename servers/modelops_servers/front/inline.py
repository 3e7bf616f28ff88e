"""A replica inside the front: the engine on one thread of its own, with the same batching."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from modelops.errors import (
    DeadlineError,
    EngineError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
)
from modelops.protocols import Tensors
from modelops_servers.dataplane.packed_strings import opened
from modelops_servers.front.replica import Answer, Observer, Outputs
from modelops_servers.pulse import Pulse

if TYPE_CHECKING:
    from modelops_servers.batching import Item
    from modelops_servers.loading import Prepared


class InlineReplica:
    """Loads on its thread, then answers; all methods are called on the event loop."""

    connected = True

    def __init__(self, id: str, prepare: Callable[[], Prepared], observer: Observer) -> None:
        self.id = id
        self.pulse = Pulse()
        self.prepared: Prepared | None = None
        self._prepare = prepare
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._queue: SimpleQueue[Item | None] = SimpleQueue()
        self._tickets: set[Item] = set()
        self._done: deque[tuple[Item, Outputs | ModelopsError]] = deque()
        self._delivering = False
        self._has_strings = False
        self._thread = threading.Thread(target=self._work, name=f"engine-{id}", daemon=True)

    def start(self) -> asyncio.Future[None]:
        """Begin loading; the future ends when the engine is ready, or with why it cannot be."""
        self._thread.start()
        return self._started

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being answered."""
        return len(self._tickets)

    def submit(
        self,
        tensors: Tensors,
        deadline: float | None,
        start_by: float | None,
        reserved: int | None = None,  # noqa: ARG002 - nothing is shared inside one process
    ) -> Ticket:
        """Queue one request; see ``Replica``."""
        if self.prepared is None:
            raise NotReadyError("the engine is not loaded")
        ticket = Ticket(self._loop.create_future(), self._has_strings)
        ticket.item = item = self.prepared.make_item.make(tensors, deadline, start_by, ticket)
        self._tickets.add(item)
        self._queue.put(item)
        return ticket

    def lease(self, count: int) -> None:
        """Return None: engine and front share all memory; see ``Replica``."""

    def withdraw(self, ticket: Ticket) -> None:
        """Mark it: the engine's thread passes over it."""
        ticket.item.cancelled = True

    def close(self) -> None:
        """Fail what is still in flight and let the thread end."""
        self.abandon(NotReadyError("the engine was stopped"))
        self._tickets.clear()
        self._queue.put(None)

    def abandon(self, error: ModelopsError) -> None:
        """Fail what is in flight; see ``Replica``."""
        for item in self._tickets:
            if not item.owner.future.done():
                item.owner.future.set_exception(error)

    # The rest runs on the engine's thread, but _deliver and _settle.

    def _work(self) -> None:
        try:
            prepared = self._prepare()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits must be told
            known = error if isinstance(error, ModelopsError) else EngineError(repr(error))
            self.pulse.set_state("failed", known.message)
            self._post(self._settle, known)
            return
        self._has_strings = any(t.dtype == "string" for t in prepared.signature.inputs)
        self.prepared = prepared
        self.pulse.set_state("ready", prepared.engine.health().why)
        self._post(self._settle, None)
        self._serve(prepared)
        self.pulse.set_state("stopped", "stopped")
        prepared.engine.stop(None)

    def _serve(self, prepared: Prepared) -> None:
        from modelops_servers.batching import answer

        batcher, signature, engine = prepared.batcher(), prepared.signature, prepared.engine
        stopping = False
        while not (stopping and not len(batcher)):
            with contextlib.suppress(Empty):
                block = not len(batcher)
                while (item := self._queue.get(block)) is not None:
                    if item.owner.packed:
                        item.tensors = {n: opened(a) for n, a in item.tensors.items()}
                    batcher.put(item)
                    block = False
                stopping = True
            now = time.monotonic()
            taken = batcher.take(now)
            for item in taken.expired:
                self._finish(item, DeadlineError("the deadline passed in the queue"))
            for item in taken.overdue:
                self._finish(item, OverloadedError("it waited too long for the engine"))
            for item in taken.cancelled:
                self._finish(item, NotReadyError("withdrawn"))
            if taken.batch:
                self.pulse.began(now, len(batcher))
                results = answer(engine, signature, taken.batch)
                self.pulse.ended(time.monotonic())
                self._observer.batch(sum(item.rows for item in taken.batch))
                for item, result in zip(taken.batch, results, strict=True):
                    self._observer.queued(now - item.enqueued)
                    self._done.append((item, result))
            if self._done and not self._delivering:
                self._delivering = True
                self._post(self._deliver)

    def _finish(self, item: Item, error: ModelopsError) -> None:
        self._done.append((item, error))

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *args)

    def _deliver(self) -> None:
        # Cleared first: what is appended from here on either is popped below or posts anew.
        self._delivering = False
        while self._done:
            item, result = self._done.popleft()
            self._tickets.discard(item)
            future = item.owner.future
            if future.done():
                continue
            if isinstance(result, ModelopsError):
                future.set_exception(result)
            else:
                future.set_result(Answer(result))

    def _settle(self, error: ModelopsError | None) -> None:
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)


class Ticket:
    """One request in the queue."""

    __slots__ = ("future", "item", "packed")

    item: Any

    def __init__(self, future: asyncio.Future[Answer], packed: bool) -> None:
        self.future = future
        self.packed = packed
        """Whether tensors of strings may be in it, which may have to be taken apart."""
