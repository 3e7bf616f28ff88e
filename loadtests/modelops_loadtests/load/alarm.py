"""Waking a greenlet at a moment, more exactly than the event loop's own timers can."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import sys
import time
from functools import cache
from typing import Any

from gevent import get_hub, sleep

_MONOTONIC = 1  # CLOCK_MONOTONIC, which time.perf_counter reads on Linux
_ABSOLUTE = 1  # TFD_TIMER_ABSTIME


class Alarm:
    """Sleeps until a moment of ``time.perf_counter``.

    The loop's timers have the grain of epoll, a millisecond, and are rounded up; on Linux a
    timerfd is waited for instead (a tenth of a millisecond late, at no more CPU). Elsewhere it
    is the loop's timer. Either way how late each arrival was is measured, not assumed.
    """

    def __init__(self) -> None:
        self._descriptor = _timer() if sys.platform == "linux" else None
        self._watcher: Any = None
        if self._descriptor is not None:
            self._watcher = get_hub().loop.io(self._descriptor, 1)

    def wait_until(self, moment: float) -> None:
        """Return at ``moment``, or at once where it has passed."""
        left = moment - time.perf_counter()
        if left <= 0:
            return
        if self._descriptor is None:
            sleep(left)
            return
        seconds = int(moment)
        spec = struct.pack("qqqq", 0, 0, seconds, max(1, int((moment - seconds) * 1e9)))
        if _libc().timerfd_settime(self._descriptor, _ABSOLUTE, spec, None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
        get_hub().wait(self._watcher)
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)

    def close(self) -> None:
        """Free the timer."""
        if self._descriptor is not None:
            self._watcher.stop()
            self._watcher.close()
            os.close(self._descriptor)
            self._descriptor = None


@cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _timer() -> int:
    descriptor = int(_libc().timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "timerfd_create failed")
    return descriptor
