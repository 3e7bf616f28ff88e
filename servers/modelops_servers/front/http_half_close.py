"""Whether a client that sends no more still reads.

Its FIN says the same whether it closed the connection or only its own direction. But what reaches a
connection that nobody has open any more is answered with a reset, which the kernel remembers: so
something is sent, and the kernel asked.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

# A client may get any number of these before its answer, and drops them (RFC 9110, 15.2).
_NOTHING = b"HTTP/1.1 100 Continue\r\n\r\n"
# The reset comes after one round trip: how long that takes nobody knows.
_FIRST_SECONDS = 0.01
_LAST_SECONDS = 0.5
_TCP_CLOSE = 7  # of the kernel's enum in tcp_states.h


class HalfClosed:
    """Ends a connection once its client turns out to have left."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._socket: Any = transport.get_extra_info("socket")
        self._timer: asyncio.TimerHandle | None = None
        self._wait = _FIRST_SECONDS

    def probe(self) -> None:
        """Send what a client drops; only before an answer has begun, and to HTTP/1.1."""
        self._transport.write(_NOTHING)

    def watch(self) -> None:
        """Look again and again, until ``stop`` or until the client has left."""
        if self._left():
            self._transport.abort()
            return
        self._timer = self._loop.call_later(self._wait, self.watch)
        self._wait = min(2 * self._wait, _LAST_SECONDS)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _left(self) -> bool:
        try:
            info: bytes = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
        except OSError:
            return True
        return info[0] == _TCP_CLOSE
