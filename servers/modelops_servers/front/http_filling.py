"""A body on its way from the kernel straight into the memory where it is wanted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelops_servers.front.http_protocol import HttpProtocol

_STEP = 2**20


class Filling(asyncio.BufferedProtocol):
    """Stands in for its connection while a body goes from the kernel straight into ``view``."""

    def __init__(self, connection: HttpProtocol, view: memoryview) -> None:
        self._connection = connection
        self._rest = view
        self._size = 0

    def stop(self) -> int:
        """Write to the view no more; return how many bytes it got."""
        if self._rest:
            self._rest = memoryview(b"")
            self._connection.filled(whole=False)
        return self._size

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return what is missing, a step of it: no copy may hold up the other connections."""
        return self._rest[:_STEP]

    def buffer_updated(self, nbytes: int) -> None:
        """Go on, or back to parsing when nothing is missing."""
        self._size += nbytes
        self._rest = self._rest[nbytes:]
        if not self._rest:
            self._connection.filled(whole=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Pass it on."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._connection.resume_writing()
