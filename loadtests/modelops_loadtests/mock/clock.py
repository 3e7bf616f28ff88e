"""An event loop whose timers are as fine as the kernel's."""

from __future__ import annotations

import asyncio
import select
import selectors
import sys


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a loop that wakes within tens of microseconds of when it was asked to."""
    if sys.platform != "linux":
        return asyncio.new_event_loop()

    # Here, not above: where gevent has patched the standard library there is no such class.
    class PreciseSelector(selectors.EpollSelector):
        """epoll, which counts in whole milliseconds, waited for by select, which does not."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None or timeout > 0:
                select.select((self.fileno(),), (), (), timeout)
            return super().select(0)

    return asyncio.SelectorEventLoop(PreciseSelector())
