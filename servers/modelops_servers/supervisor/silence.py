"""How long a process has said nothing, by the time in which somebody listened."""

from __future__ import annotations

_MOST_SECONDS = 1.0


class Watch:
    """A clock that runs only while this process does.

    Where it was stopped, or starved by others, what was said to it meanwhile is still unread: that
    time proves nothing about those whom it watches.
    """

    def __init__(self, now: float) -> None:
        self._seen = now
        self.seconds = 0.0

    def look(self, now: float) -> float:
        """Return the seconds of watching; ``now`` is on a clock that never stops."""
        self.seconds += min(now - self._seen, _MOST_SECONDS)
        self._seen = now
        return self.seconds


class Silence:
    """The silence of one process; ``now`` is always on a watch's clock."""

    def __init__(self) -> None:
        self._since: float | None = None

    def heard(self) -> None:
        """It has just said something, or was started."""
        self._since = None

    def seconds(self, now: float) -> float:
        """Return for how long it has been silent, as far as anybody looked."""
        if self._since is None:
            self._since = now
        return now - self._since
