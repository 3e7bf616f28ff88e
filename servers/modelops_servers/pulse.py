"""How one engine is: told to whoever asks, from any thread. Busy is not stuck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from modelops.protocols import Health, State

PROGRESS_SECONDS = 30.0
_SLOWEST_FACTOR = 10


class Pulse:
    """Written by the engine's thread; an attribute's assignment is all that it costs.

    Stuck is one call that lasts beyond all others while work waits: longer than
    ``progress_seconds`` and than ten times the slowest call that ever ended.
    """

    def __init__(self, progress_seconds: float = PROGRESS_SECONDS) -> None:
        self._progress_seconds = progress_seconds
        self._slowest = 0.0
        self.running_since: float | None = None
        """When the call that is in the engine now began (monotonic)."""
        self.waiting = 0
        """Requests that wait beside it, as far as the engine's thread has read."""
        self.unread: Callable[[], bool] = lambda: False
        """Whether more has come than that thread has read."""
        self.last_progress: float | None = None
        """When a call last ended, in UNIX seconds."""
        self.mean_seconds = 0.0
        """A moving mean of the seconds that one call takes."""
        self.set_state("loading", "opening the artifact and starting the engine")

    def set_state(self, state: State, why: str) -> None:
        """Say what it is from now on."""
        self.state: State = state
        self._why = why
        self._since = time.time()

    def began(self, now: float, waiting: int) -> None:
        """A call begins."""
        self.waiting = waiting
        self.running_since = now

    def ended(self, now: float) -> None:
        """The call has ended, well or badly: either is progress."""
        since = self.running_since
        self.running_since = None
        if since is not None:
            seconds = now - since
            self._slowest = max(self._slowest, seconds)
            self.mean_seconds += (seconds - self.mean_seconds) / 16
        self.last_progress = time.time()

    def health(self, waiting: int | None = None) -> Health:
        """Say how it is; ``waiting`` overrides what the engine's thread knows."""
        since = self.running_since
        queued = self.waiting if waiting is None else waiting
        if self.state == "ready" and since is not None:
            limit = max(self._progress_seconds, _SLOWEST_FACTOR * self._slowest)
            over = time.monotonic() - since - limit
            if over > 0 and (queued > 0 or self.unread()) and self.running_since == since:
                return Health(
                    "stuck",
                    f"one call has been in the engine for {over + limit:.0f} s while "
                    f"{queued or 'others'} wait",
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
