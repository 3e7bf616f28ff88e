"""One socket on the event loop: what arrives is stamped by the kernel, what is sent goes at once.

The loop's own transports read without the kernel's stamps; when a request arrived would then be
known no better than when the mock came to read it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable

from modelops_loadtests.client.clock import ANCILLARY_BYTES, KernelClock, ask_for_stamps

_READ_BYTES = 65536


class Wire:
    """Calls ``received(data, arrived)`` for what comes, and ``lost()`` when the peer is gone."""

    def __init__(
        self,
        sock: socket.socket,
        clock: KernelClock,
        received: Callable[[bytes, float], None],
        lost: Callable[[], None],
    ) -> None:
        self._socket, self._clock = sock, clock
        self._received, self._lost = received, lost
        self._loop = asyncio.get_running_loop()
        self._unsent = bytearray()
        self._closing = False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        self._loop.add_reader(sock, self._read)

    def send(self, data: bytes) -> bool:
        """Send it; return whether the kernel took all of it at once."""
        if self._unsent or self._socket.fileno() < 0:
            self._unsent += data
            return False
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return True  # the peer is gone, which the next read finds
        if sent == len(data):
            return True
        self._unsent += data[sent:]
        self._loop.add_writer(self._socket, self._flush)
        return False

    def close(self) -> None:
        """Close it when all is sent."""
        self._closing = True
        if not self._unsent:
            self._end()

    def reset(self) -> None:
        """Close it so that the peer sees a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end()

    def _read(self) -> None:
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, ancillary = b"", []
        now = time.perf_counter()
        if not data:
            self._end()
            self._lost()
            return
        self._received(data, self._clock.arrival(ancillary, now) or now)

    def _flush(self) -> None:
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self._unsent.clear()
            sent = 0
        del self._unsent[:sent]
        if not self._unsent:
            self._loop.remove_writer(self._socket)
            if self._closing:
                self._end()

    def _end(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


class Listener:
    """Accepts on one port; ``accepted`` is called with each new socket."""

    def __init__(self, host: str, port: int, accepted: Callable[[socket.socket], None]) -> None:
        self._accepted = accepted
        self._socket = socket.create_server((host, port), backlog=4096)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Stop accepting."""
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self._accepted(sock)
