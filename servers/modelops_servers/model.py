"""One served model: a bounded queue in front of one worker thread that owns the engine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

import numpy.typing as npt

from modelops.config import ModelConfig
from modelops.errors import (
    DeadlineError,
    EngineError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
)
from modelops.protocols import Health, State, Tensors
from modelops_servers.loading import Loaded

_log = logging.getLogger(__name__)

PROGRESS_SECONDS = 30.0
_SLOWEST_FACTOR = 10
_RETRY_AFTER = (1, 30)

Outputs = dict[str, npt.NDArray[Any]]


class QueueFullError(OverloadedError):
    """The model's queue is full; ``retry_after`` is the expected wait in seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message, hint="send fewer requests at once, or come back later")
        self.retry_after = retry_after


class Observer(Protocol):
    """What a model tells about its work; called from its worker thread and from the loop."""

    def queued(self, seconds: float) -> None:
        """A request waited this long for the engine."""

    def batch(self, size: int) -> None:
        """The engine answered this many items in one call."""

    def rejected(self, reason: str) -> None:
        """A request was turned away before the engine saw it."""


class _Ticket:
    """One request on its way to the worker and back."""

    __slots__ = ("deadline", "enqueued", "future", "tensors")

    def __init__(
        self, tensors: Tensors, deadline: float | None, future: asyncio.Future[Outputs]
    ) -> None:
        self.tensors = tensors
        self.deadline = deadline
        self.future = future
        self.enqueued = time.monotonic()


class ServedModel:
    """Loads in the background, answers in order, and says how it is.

    All methods but ``health`` are called on the event loop that ``start`` was called on.
    """

    def __init__(
        self,
        config: ModelConfig,
        load: Callable[[ModelConfig], Loaded],
        observer: Observer,
        *,
        progress_seconds: float = PROGRESS_SECONDS,
    ) -> None:
        self.config = config
        self.name = config.name
        self.loaded: Loaded | None = None
        self._load = load
        self._observer = observer
        self._progress_seconds = progress_seconds
        self._queue: SimpleQueue[_Ticket | None] = SimpleQueue()
        self._tickets: set[_Ticket] = set()
        self._done: deque[tuple[_Ticket, Outputs | None, BaseException | None]] = deque()
        self._delivering = False
        self._running_since: float | None = None
        self._last_progress: float | None = None
        self._slowest = 0.0
        self._mean = 0.0
        self._thread = threading.Thread(target=self._work, name=f"model-{self.name}", daemon=True)
        self._set_state("loading", "waiting to start")

    def start(self) -> asyncio.Future[None]:
        """Begin loading; the future ends when the model is ready, or with why it cannot be."""
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._set_state("loading", "opening the artifact and starting the engine")
        self._thread.start()
        return self._started

    async def infer(self, tensors: Tensors, deadline: float | None) -> Outputs:
        """Queue one request and return its outputs; cancelling the call withdraws it.

        ``deadline`` is on ``time.monotonic``'s clock.

        Raises:
            NotReadyError: the model is not ready.
            OverloadedError: its queue is full.
            RequestError, DeadlineError, EngineError: as ``TensorEngine.infer``.
        """
        self._admit()
        ticket = _Ticket(tensors, deadline, self._loop.create_future())
        self._tickets.add(ticket)
        self._queue.put(ticket)
        try:
            return await ticket.future
        finally:
            self._tickets.discard(ticket)

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being answered."""
        return len(self._tickets)

    def health(self) -> Health:
        """Say how it is. Busy is not stuck: stuck is one call beyond all others while work waits.

        The limit is ``progress_seconds``, or ten times the slowest call that ever ended.
        """
        running = self._running_since
        if self._state == "ready" and running is not None and len(self._tickets) > 1:
            limit = max(self._progress_seconds, _SLOWEST_FACTOR * self._slowest)
            over = time.monotonic() - running - limit
            if over > 0:
                return Health(
                    "stuck",
                    f"one call has been in the engine for {over + limit:.0f} s while "
                    f"{len(self._tickets) - 1} wait",
                    time.time() - over,
                    self._last_progress,
                )
        return Health(self._state, self._why, self._since, self._last_progress)

    def describe(self) -> dict[str, Any]:
        """What the engine says is really in use; empty until it is loaded."""
        return self.loaded.engine.describe() if self.loaded else {}

    async def drain(self, deadline: float) -> None:
        """Admit nothing more, and wait for what is in flight up to ``deadline`` (monotonic)."""
        if self._state in ("ready", "loading"):
            self._set_state("stopping", "the server is stopping")
        while self._tickets and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    async def stop(self, seconds: float = 2.0) -> bool:
        """Fail what is still in flight, stop the engine, and wait for the worker up to ``seconds``.

        Returns whether the worker ended: inside a native call it cannot be made to.
        """
        for ticket in list(self._tickets):
            if not ticket.future.done():
                ticket.future.set_exception(NotReadyError("the server stopped before the answer"))
        self._queue.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, seconds)
        if self._state != "failed":
            self._set_state("stopped", "stopped")
        return not self._thread.is_alive()

    def _admit(self) -> None:
        health = self.health()
        if health.state != "ready":
            self._observer.rejected("not_ready")
            raise NotReadyError(f"model {self.name!r} is {health.state}: {health.why}")
        # One more than may wait: the one that the engine works on.
        if len(self._tickets) > self.config.admission.max_queue:
            self._observer.rejected("queue_full")
            low, high = _RETRY_AFTER
            wait = math.ceil(len(self._tickets) * self._mean)
            raise QueueFullError(
                f"{self.config.admission.max_queue} requests already wait for {self.name!r}",
                retry_after=max(low, min(high, wait)),
            )

    def _set_state(self, state: State, why: str) -> None:
        self._state: State = state
        self._why = why
        self._since = time.time()

    # The rest runs on the worker thread, but _deliver and _settle_start.

    def _work(self) -> None:
        try:
            loaded = self._load(self.config)
            loaded.engine.start()
        except Exception as error:  # noqa: BLE001 - whatever it is, whoever waits must be told
            why = error.message if isinstance(error, ModelopsError) else repr(error)
            self._set_state("failed", why)
            self._post(self._settle_start, error)
            return
        self.loaded = loaded
        if self._state == "loading":
            self._set_state("ready", loaded.engine.health().why)
        self._last_progress = time.time()
        self._post(self._settle_start, None)
        while (ticket := self._queue.get()) is not None:
            self._answer(loaded, ticket)
        loaded.engine.stop(None)

    def _answer(self, loaded: Loaded, ticket: _Ticket) -> None:
        if ticket.future.done():  # its client left, or its deadline passed
            return
        began = time.monotonic()
        self._observer.queued(began - ticket.enqueued)
        outputs: Outputs | None = None
        error: BaseException | None = None
        if ticket.deadline is not None and began >= ticket.deadline:
            self._observer.rejected("deadline")
            error = DeadlineError("the deadline passed while the request waited in the queue")
        else:
            self._running_since = began
            try:
                outputs = loaded.engine.infer(ticket.tensors, ticket.deadline)
            except ModelopsError as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - the worker must outlive any request
                _log.exception("the engine of %s failed in an unforeseen way", self.name)
                error = EngineError(f"the engine failed: {type(failure).__name__}")
            self._running_since = None
            if error is None:
                self._last_progress = time.time()
                seconds = time.monotonic() - began
                self._slowest = max(self._slowest, seconds)
                self._mean += (seconds - self._mean) / 16
                self._observer.batch(_items(ticket.tensors))
        self._done.append((ticket, outputs, error))
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
            ticket, outputs, error = self._done.popleft()
            if ticket.future.done():
                continue
            if error is not None:
                ticket.future.set_exception(error)
            else:
                assert outputs is not None  # noqa: S101 - one of the two is there
                ticket.future.set_result(outputs)

    def _settle_start(self, error: BaseException | None) -> None:
        if self._started.done():
            return
        if error is None:
            self._started.set_result(None)
        else:
            self._started.set_exception(error)


def _items(tensors: Tensors) -> int:
    first = next(iter(tensors.values()), None)
    return int(first.shape[0]) if first is not None and first.ndim else 1
