"""A front that has imported all it needs and waits to be told which one it is to be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from modelops_servers.supervisor.backoff import Backoff
from modelops_servers.supervisor.child import Child, Message, OnExit, OnMessage
from modelops_servers.supervisor.silence import Silence

FRONT = "modelops_servers.front"
DEAD_SECONDS = 10.0
"""A front beats twice a second; one that has been silent for this long is killed."""

IMPORT_SECONDS = 60.0
"""A front that has not said a word for this long after its start is killed."""

_WELL_SECONDS = 2.0  # one that has been silent for longer is not taken: it may hang


class Spare:
    """At most one; whoever takes it has a front at once, also on a machine that is busy."""

    def __init__(self, fds: Sequence[int]) -> None:
        """``fds`` are the listening sockets: what becomes a front has them already."""
        self._fds = fds
        self._backoff = Backoff()
        self._due = 0.0
        self._silence = Silence()
        self._silent = 0.0
        self.imported = False
        """Whether it has said so: then it has little left to do before it serves."""
        self._child: Child | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping = False

    def look(self, now: float, *, wanted: bool) -> None:
        """See to it that there is one where it is ``wanted``, and that it lives.

        ``now`` is on the supervisor's clock of watching.
        """
        if self._stopping:
            return
        if self._child is not None:
            limit = DEAD_SECONDS if self.imported else IMPORT_SECONDS
            self._silent = self._silence.seconds(now)
            if self._silent > limit:
                self._child.kill()
        elif wanted and not self._is_starting and time.monotonic() >= self._due:
            self._starting = asyncio.create_task(self._start())

    def take(self, name: str, on_message: OnMessage, on_exit: OnExit) -> Child | None:
        """Return the child, which was never told anything; None where there is none.

        It may still be importing: it began to before any other could.
        """
        child, self._child = self._child, None
        if child is None or not child.is_there:
            return None
        if self.imported and self._silent > _WELL_SECONDS:
            child.kill()
            return None
        child.hand_over(name, on_message, on_exit)
        return child

    async def stop(self) -> None:
        """End it."""
        self._stopping = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        if self._child is not None:
            self._child.kill()
            await self._child.exited.wait()

    @property
    def _is_starting(self) -> bool:
        return self._starting is not None and not self._starting.done()

    async def _start(self) -> None:
        child = Child("front-spare", FRONT, self._on_message, self._on_exit)
        self._silence.heard()
        self._silent = 0.0
        self.imported = False
        try:
            await child.start(None, self._fds)
        except OSError:
            self._due = time.monotonic() + self._backoff.next()
        else:
            self._child = child

    def _on_message(self, child: Child, message: Message) -> None:  # noqa: ARG002
        # It says nothing but that it is there.
        self._silence.heard()
        if not self.imported:
            self.imported = True
            self._backoff.well()

    async def _on_exit(self, child: Child, code: int) -> None:  # noqa: ARG002
        if child is self._child:
            self._child = None
        self._due = time.monotonic() + self._backoff.next()
