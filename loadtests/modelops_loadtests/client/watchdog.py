"""Two limits on one exchange, whole and idle, that cost nothing while bytes come."""

from __future__ import annotations

import time
from typing import Any

from gevent import get_hub, getcurrent


class ExchangeTimeoutError(BaseException):
    """Thrown into the greenlet that waits; no ``except Exception`` on the way takes it."""


class Watchdog:
    """Throws ExchangeTimeoutError into the greenlet that made it, ``total`` seconds from now.

    Or ``idle`` seconds after the last ``touched``, which the owner sets: one timer looks at it
    when it fires, instead of one that is set anew for every byte.
    """

    __slots__ = ("_deadline", "_greenlet", "_idle", "_timer", "_total", "touched")

    def __init__(self, total: float, idle: float | None) -> None:
        self.touched = time.perf_counter()
        self._total, self._idle = total, idle
        self._deadline = self.touched + total
        self._greenlet = getcurrent()
        self._timer: Any = None
        self._arm(total if idle is None else min(total, idle))

    def grace(self, seconds: float) -> None:
        """Allow no more than these seconds from now on."""
        self.cancel()
        self._total, self._deadline = seconds, min(self._deadline, time.perf_counter() + seconds)
        self._arm(max(0.0, self._deadline - time.perf_counter()))

    def cancel(self) -> None:
        """Throw no more."""
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None

    def _arm(self, seconds: float) -> None:
        self._timer = get_hub().loop.timer(seconds)
        self._timer.start(self._look, update=True)

    def _look(self) -> None:
        self.cancel()
        now = time.perf_counter()
        # The loop's clock is its own: what is nearly there is there.
        left = self._deadline - now
        if left <= 0.001:
            self._greenlet.throw(ExchangeTimeoutError(f"no whole reply in {self._total:g} s"))
            return
        if self._idle is not None:
            quiet = self.touched + self._idle - now
            if quiet <= 0.001:
                self._greenlet.throw(ExchangeTimeoutError(f"no byte for {self._idle:g} s"))
                return
            left = min(left, quiet)
        self._arm(left)
