"""Keep-alive connections for an open loop: as many as are needed, or as many as are allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from gevent.lock import BoundedSemaphore


class Closable(Protocol):
    """A connection."""

    def close(self) -> None:
        """Close it."""


C = TypeVar("C", bound=Closable)


class Pool(Generic[C]):
    """Lends connections; the one used last is lent first, so that few are open.

    Beyond ``limit`` the caller waits, in the order of asking: that is the queueing behind few
    connections that an open loop counts, since its latencies are from the scheduled moment.
    """

    def __init__(self, connect: Callable[[], C], limit: int | None = None) -> None:
        self._connect = connect
        self._idle: list[C] = []
        self._slots = None if limit is None else BoundedSemaphore(limit)
        self.opened = 0
        """How many were made."""

    def take(self) -> C:
        """Return a connection that nobody else uses."""
        if self._slots is not None:
            self._slots.acquire()
        if self._idle:
            return self._idle.pop()
        self.opened += 1
        return self._connect()

    def give_back(self, connection: C) -> None:
        """Take it back; it is closed by ``close`` only, and reconnects by itself if it broke."""
        self._idle.append(connection)
        if self._slots is not None:
            self._slots.release()

    def close(self) -> None:
        """Close the connections that are not lent."""
        while self._idle:
            self._idle.pop().close()
