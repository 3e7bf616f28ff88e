"""A replica inside the front: the engine on threads of its own, with the same batching."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from modelops.errors import EngineError, ModelopsError, NotReadyError
from modelops.protocols import Tensors
from modelops_servers.dataplane.packed_strings import opened
from modelops_servers.front.replica import Answer, Observer, Outputs
from modelops_servers.pulse import Pulse

if TYPE_CHECKING:
    from modelops_servers.batching import Item
    from modelops_servers.loading import Prepared

_log = logging.getLogger(__name__)


class InlineReplica:
    """Loads on its thread, then answers; a ``Replica``, and the desk of its ``Lanes``."""

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
        self._put: Callable[[Item], None]
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
        self.wake()

    def abandon(self, error: ModelopsError) -> None:
        """Fail what is in flight; see ``Replica``."""
        for item in self._tickets:
            if not item.owner.future.done():
                item.owner.future.set_exception(error)

    # The rest runs on the engine's threads, but _deliver and _settle.

    def _work(self) -> None:
        from modelops_servers.lanes import Lanes

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
        batcher = prepared.batcher()
        self._put = batcher.put
        try:
            Lanes(prepared, batcher, self.pulse, self).work()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits must be told
            _log.exception("the engine's thread failed")
            self.pulse.set_state("failed", f"its thread failed: {error!r}")
            self._post(self.abandon, EngineError("the engine's thread failed"))
        else:
            self.pulse.set_state("stopped", "stopped")
        prepared.engine.stop(None)

    def fill(self, wait: bool) -> bool:
        """Take what was submitted; see ``modelops_servers.lanes.Desk``."""
        with contextlib.suppress(Empty):
            while (item := self._queue.get(wait)) is not None:
                if item.owner.packed:
                    began = time.monotonic()
                    item.tensors = {n: opened(a) for n, a in item.tensors.items()}
                    item.put_off(time.monotonic() - began)
                self._put(item)
                wait = False
            return False
        return True

    def refuse(self, items: Sequence[tuple[Item, ModelopsError]], now: float) -> None:  # noqa: ARG002
        """Answer with errors; see ``modelops_servers.lanes.Desk``."""
        self._hand_over(items)

    def hand_out(
        self, batch: Sequence[Item], results: Sequence[Outputs | ModelopsError], began: float
    ) -> None:
        """Answer one batch; see ``modelops_servers.lanes.Desk``."""
        self._observer.batch(sum([item.rows for item in batch]))
        for item in batch:
            self._observer.queued(began - item.enqueued)
        self._hand_over(zip(batch, results, strict=True))

    def wake(self) -> None:
        """End the wait for the next request; see ``modelops_servers.lanes.Desk``."""
        self._queue.put(None)

    def _hand_over(self, done: Iterable[tuple[Item, Outputs | ModelopsError]]) -> None:
        self._done.extend(done)
        if not self._delivering:
            self._delivering = True
            self._post(self._deliver)

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
