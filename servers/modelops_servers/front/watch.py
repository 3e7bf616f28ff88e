"""Ends a request's work when nobody waits for it: its client left, or its deadline passed."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

from modelops.errors import DeadlineError, ModelopsError
from modelops_servers.front.limits import ClientLeftError, Receive

# Most answers are there sooner, and then watching costs one timer and no task.
_GRACE_SECONDS = 0.05


class ClientWatch:
    """``with`` it around the work; the work is cancelled when it became pointless.

    ``deadline`` is on ``time.monotonic``'s clock.

    Raises:
        ClientLeftError: the client closed the connection.
        DeadlineError: the deadline passed.
    """

    __slots__ = ("_deadline", "_receive", "_task", "_timer", "_watcher", "_why")

    def __init__(self, receive: Receive, deadline: float) -> None:
        self._receive = receive
        self._deadline = deadline
        self._watcher: asyncio.Task[None] | None = None
        self._why: ModelopsError | None = None

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine that runs is in a task
        self._task = task
        wait = min(_GRACE_SECONDS, self._deadline - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(max(0.0, wait), self._begin)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._watcher is not None:
            self._watcher.cancel()
        if self._why is not None and kind is asyncio.CancelledError:
            self._task.uncancel()
            raise self._why from error

    def _begin(self) -> None:
        self._watcher = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        try:
            async with asyncio.timeout(self._deadline - time.monotonic()):
                while (await self._receive())["type"] != "http.disconnect":
                    pass
            self._why = ClientLeftError("the client left before its answer")
        except TimeoutError:
            self._why = DeadlineError("the request's deadline passed before its answer was there")
        self._task.cancel()
