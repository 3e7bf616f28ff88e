"""How one engine is: told to whoever asks, from any thread. Busy is not stuck."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from modelops.protocols import Health, State

PROGRESS_SECONDS = 30.0
_SLOWEST_FACTOR = 10


class Pulse:
    """Written by the engine's threads; a dictionary's assignment is all that it costs.

    Stuck is one call that lasts beyond all others while work waits: longer than
    ``progress_seconds`` and than ten times the slowest call that ever ended.
    """

    def __init__(self, progress_seconds: float = PROGRESS_SECONDS) -> None:
        self._progress_seconds = progress_seconds
        self._slowest = 0.0
        self._running: dict[int, tuple[float, int]] = {}
        """Of each thread in a call: when it began (monotonic), and of how many requests."""
        self._stuck: tuple[float, int] | None = None
        """The call that was found stuck: it stays so until it ends, whatever others do."""
        self._waiting = 0
        self.unread: Callable[[], bool] = lambda: False
        """Whether more has come than those threads have read."""
        self.last_progress: float | None = None
        """When a call last ended, in UNIX seconds."""
        self.set_state("loading", "opening the artifact and starting the engine")

    def set_state(self, state: State, why: str) -> None:
        """Say what it is from now on."""
        self.state: State = state
        self._why = why
        self._since = time.time()

    def began(self, now: float, waiting: int, requests: int) -> None:
        """This thread begins a call of so many ``requests`` while others wait."""
        self._waiting = waiting
        self._running[threading.get_ident()] = (now, requests)

    def ended(self, now: float) -> None:
        """This thread's call has ended, well or badly: either is progress."""
        began = self._running.pop(threading.get_ident(), None)
        if began is not None:
            self._slowest = max(self._slowest, now - began[0])
        self.last_progress = time.time()

    def health(self, in_flight: int | None = None) -> Health:
        """Say how it is; ``in_flight``, where it is known, tells how many requests wait."""
        running = tuple(self._running.values())
        if self.state == "ready" and running:
            oldest = min(running)
            queued = self._waiting
            if in_flight is not None:
                queued = in_flight - sum([requests for _, requests in running])
            limit = max(self._progress_seconds, _SLOWEST_FACTOR * self._slowest)
            over = time.monotonic() - oldest[0] - limit
            waited_for = oldest == self._stuck or queued > 0 or self.unread()
            if over > 0 and waited_for and oldest in self._running.values():
                # Nobody is sent to it any more, so that soon nobody waits: that heals nothing.
                self._stuck = oldest
                return Health(
                    "stuck",
                    f"one call has been in the engine for {over + limit:.0f} s while "
                    f"{queued if queued > 0 else 'others'} wait",
                    time.time() - over,
                    self.last_progress,
                )
        return Health(self.state, self._why, self._since, self.last_progress)

    def report(self) -> dict[str, Any]:
        """Return the health as JSON can hold it."""
        health = self.health()
        return {
            "state": health.state,
            "why": health.why,
            "since": health.since,
            "last_progress": health.last_progress,
        }
