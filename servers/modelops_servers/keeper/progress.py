"""Whether an engine that is alive gets anywhere: busy is not stuck, and neither is idle."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

PROGRESS_SECONDS = 30.0
"""An engine with work that has not moved for this long may be stuck."""
WORKING_SECONDS = 600.0
"""As long may one step take whose work can be seen to be done: a long prompt on a slow CPU."""
CANARY_SECONDS = 5.0
"""An engine that has nothing else to do answers one token within this, or is stuck."""
QUIET_SECONDS = 5.0
"""After so long without a sign of progress it is asked for one token."""
UNANSWERED_SECONDS = 10.0
"""Its metrics are answered within this, or its server is stuck."""
SLOWEST_FACTOR = 10


@dataclass
class Progress:
    """Fed with what was seen and when, on a monotonic clock; reads no clock itself.

    A step of the engine moves its metrics. While there is work and nothing moves, time runs: up to
    ``PROGRESS_SECONDS`` and ten times the longest such time that ever ended well, beyond which it
    is stuck. Where the only work is the canary, a one-token request of the keeper's own, the time
    is shorter; where the engine's processes are seen to work, it is longer.
    """

    now: float

    def __post_init__(self) -> None:
        self._moved = self.now
        self._answered = self.now
        self._moving: Hashable = None
        self._others = 0
        self._pending_since: float | None = None
        self._canary_since: float | None = None
        self._slowest = 0.0
        self._slowest_canary = 0.0
        self._working = False

    def saw(self, now: float, moving: Hashable, others: int) -> bool:
        """Take a reading and how many requests of ``others`` it has; return whether it moved."""
        self._answered = now
        moved = moving != self._moving
        self._moving = moving
        self._others = others
        if moved:
            self._step(now)
        if others and self._pending_since is None:
            self._pending_since = now
        elif not others:
            self._pending_since = None
        return moved

    def works(self, working: bool) -> None:
        """Say whether its processes do anything, where that tells work from waiting."""
        self._working = working

    def canary_began(self, now: float) -> None:
        """A one-token request was sent."""
        self._canary_since = now

    def canary_ended(self, now: float, *, answered: bool) -> None:
        """It is over; ``answered``: by a token."""
        began, self._canary_since = self._canary_since, None
        if answered:
            if began is not None and not self._others:
                self._slowest_canary = max(self._slowest_canary, now - began)
            self._step(now)
        else:
            # Asked again, but not at once.
            self._moved = now

    @property
    def canary_is_out(self) -> bool:
        """Whether a one-token request has not come back yet."""
        return self._canary_since is not None

    def wants_canary(self, now: float) -> bool:
        """Whether it is time to ask for one token: nothing else shows that the engine works."""
        return self._canary_since is None and now - self._moved >= QUIET_SECONDS

    def slept(self, seconds: float) -> None:
        """Leave out a time in which whoever looks was itself away."""
        self._moved += seconds
        self._answered += seconds
        if self._pending_since is not None:
            self._pending_since += seconds
        if self._canary_since is not None:
            self._canary_since += seconds

    def stuck(self, now: float) -> str | None:
        """Return why it is stuck; None: it is not."""
        silent = now - self._answered
        if silent > UNANSWERED_SECONDS:
            return f"its metrics have not been answered for {silent:.0f} s"
        if self._pending_since is not None:
            since = max(self._pending_since, self._moved)
            least = WORKING_SECONDS if self._working else PROGRESS_SECONDS
            limit = max(least, SLOWEST_FACTOR * self._slowest)
            if now - since > limit:
                return (
                    f"no progress for {now - since:.0f} s, with {self._others} requests in it "
                    f"(the longest so far took {self._slowest:.1f} s)"
                )
        elif self._canary_since is not None:
            since = max(self._canary_since, self._moved)
            least = PROGRESS_SECONDS if self._working else CANARY_SECONDS
            limit = max(least, SLOWEST_FACTOR * self._slowest_canary)
            if now - since > limit:
                return f"it is idle, and has not answered one token for {now - since:.0f} s"
        return None

    def _step(self, now: float) -> None:
        if self._pending_since is not None:
            gap = now - max(self._pending_since, self._moved)
            self._slowest = max(self._slowest, gap)
        self._moved = now
