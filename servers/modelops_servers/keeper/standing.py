"""How a kept engine is: what its keeper tells the supervisor."""

from __future__ import annotations

import time
from typing import Any

from modelops.protocols import State


class Standing:
    """The state, why, and since when; all in one process, on one loop."""

    def __init__(self, why: str) -> None:
        self.state: State = "loading"
        self.why = why
        self.since = time.time()
        self.last_progress: float | None = None
        """When the engine last did a step, in UNIX seconds."""
        self.next: str | None = None

    def set(self, state: State, why: str, next: str | None = None) -> None:
        """Say how it is from now on; ``since`` stays where only the reason is another."""
        if state != self.state:
            self.since = time.time()
        self.state, self.why, self.next = state, why, next

    def report(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {
            "state": self.state,
            "why": self.why,
            "since": self.since,
            "last_progress": self.last_progress,
            "next": self.next,
        }
