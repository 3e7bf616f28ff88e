"""The kernel's arrival stamps, brought onto the clock that everything else is measured by."""

from __future__ import annotations

import socket
import struct
import time
from functools import cache
from typing import Any

# Of Linux; the socket module has no names for them.
SO_TIMESTAMPNS = 35
ANCILLARY_BYTES = socket.CMSG_SPACE(16)
_UNPACK = struct.Struct("qq").unpack
_REMEASURE_SECONDS = 0.25
_SURE_SECONDS = 0.005
_TRIES = 5


class KernelClock:
    """Turns CLOCK_REALTIME, which the kernel stamps with, into ``time.perf_counter``.

    Both run at one rate on Linux, but the realtime clock can be set: the offset is measured anew
    several times a second, each time by the tightest of a few pairs of readings.
    """

    def __init__(self) -> None:
        self._offset = 0.0
        self._measured = float("-inf")
        # The kernel stamps packets only while some socket asks for it, and takes a moment to
        # begin: this one asks from before the first connection on.
        self._asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.works = ask_for_stamps(self._asking)

    def arrival(self, ancillary: list[Any], now: float) -> float | None:
        """Return when the data of a ``recvmsg`` arrived; None without a stamp to be believed.

        ``now`` is when the call returned: nothing arrived later than that.
        """
        for level, kind, data in ancillary:
            if kind == SO_TIMESTAMPNS and level == socket.SOL_SOCKET and len(data) == 16:
                if now - self._measured > _REMEASURE_SECONDS:
                    self._measure(now)
                seconds, nanoseconds = _UNPACK(data)
                at: float = seconds - self._offset + nanoseconds * 1e-9
                if not -_SURE_SECONDS < now - at < _SURE_SECONDS:
                    # Read late, or the clock was set meanwhile: the offset of now decides.
                    self._measure(now)
                    at = seconds - self._offset + nanoseconds * 1e-9
                return at if at < now else now
        return None

    def _measure(self, now: float) -> None:
        best = float("inf")
        for _ in range(_TRIES):
            before = time.perf_counter()
            real = time.time()
            after = time.perf_counter()
            if after - before < best:
                best, self._offset = after - before, real - (before + after) / 2
        self._measured = now


def ask_for_stamps(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what this socket receives; return whether it will."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


@cache
def kernel_clock() -> KernelClock:
    """Return the one of all connections of the process; the first to ask makes it."""
    return KernelClock()
