"""How one replica is, as told by whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelops.protocols import State

# The first of these that a replica is in stands for the version: the nearest to being of use.
_ORDER: tuple[State, ...] = ("ready", "stuck", "loading", "failed", "stopping", "stopped")


@dataclass
class Standing:
    """One replica's state, as told by whoever watches it; ``since`` in UNIX seconds."""

    id: str
    state: State
    why: str
    since: float
    next: str
    restarts: int = 0
    last_progress: float | None = None
    describe: Mapping[str, Any] = field(default_factory=dict)

    def __lt__(self, other: Standing) -> bool:
        return _ORDER.index(self.state) < _ORDER.index(other.state)
