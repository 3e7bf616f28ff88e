"""One served version of a model, whatever its engine: its replicas, admission, how it is."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from modelops.config import ModelConfig
from modelops.errors import NotReadyError
from modelops_servers.front.overload import QueueFullError
from modelops_servers.front.standing import Standing

_RETRY_AFTER = (1, 30)


class Engine(Protocol):
    """One replica, as far as it is counted and chosen."""

    id: str

    @property
    def in_flight(self) -> int:
        """Requests that it has been given and has not answered."""


class Rejections(Protocol):
    """Where refused requests are counted."""

    def rejected(self, reason: str) -> None:
        """A request was turned away before the engine saw it."""


R = TypeVar("R", bound=Engine)


class Served(ABC, Generic[R]):
    """Takes requests for one version; all methods are called on the event loop."""

    def __init__(
        self,
        config: ModelConfig,
        number: str,
        path: Path | None,
        metrics: Rejections,
        fronts: int,
    ) -> None:
        """``number`` is the version as the protocols show it; ``path``: where its files are."""
        self.config = config
        self.number = number
        self.path = path
        self.replicas: list[R] = []
        self.standings: dict[str, Standing] = {}
        """What is told of each replica."""
        self.apart: dict[str, Standing] = {}
        """What this front found of replicas that are told to be ready: it cannot reach them."""
        self.draining = False
        self._rejections = metrics
        self._fronts = fronts
        self._admitted = 0
        self._mean_seconds = 0.0
        self._last_answer: float | None = None
        self.resize()

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being answered."""
        return self._admitted

    def use(self, replica: R) -> None:
        """Send requests to this replica from now on."""
        if replica not in self.replicas:
            self.replicas = [*self.replicas, replica]
        self.apart.pop(replica.id, None)

    def spare(self, id: str) -> None:
        """Send nothing more to the replica of this id."""
        self.replicas = [one for one in self.replicas if one.id != id]

    def standing(self) -> Standing:
        """Return how this version is: as good as its best replica."""
        if self.draining:
            return Standing("", "stopping", "the server is stopping", time.time(), "")
        known = self._seen()
        if not known:
            return Standing("", "loading", "waiting for its engine", time.time(), "in a moment")
        best = min(known)
        if self._last_answer is not None:
            best.last_progress = max(self._last_answer, best.last_progress or 0)
        return best

    def _seen(self) -> list[Standing]:
        """Return how each replica is to this front."""
        usable = {r.id for r in self.replicas}
        seen = []
        for one in self.standings.values():
            if one.state == "ready" and one.id not in usable:
                # Its host is said to be well, but this front has no connection to it.
                one = self.apart.get(one.id) or Standing(
                    one.id,
                    "loading",
                    "connecting to the engine host",
                    one.since,
                    "in a moment",
                    one.restarts,
                    one.last_progress,
                )
            seen.append(one)
        return seen

    def resize(self) -> None:
        """Set how many requests are admitted: those that the engines can work on, and a queue."""
        admission = self.config.admission
        most = min(self.config.max_in_flight, self.at_once) + admission.max_queue
        # Each front admits its share: they do not ask each other.
        self._most = math.ceil(most / self._fronts)

    @property
    @abstractmethod
    def at_once(self) -> int:
        """How many requests its engines can work on together."""

    @property
    def retry_after(self) -> int:
        """After how many seconds it may have room again: as long as a request takes."""
        low, high = _RETRY_AFTER
        return max(low, min(high, math.ceil(self._mean_seconds)))

    def answered(self, began: float) -> None:
        """Take down that an engine has just answered what was asked at ``began`` (monotonic)."""
        self._last_answer = time.time()
        self._mean_seconds += (time.monotonic() - began - self._mean_seconds) / 16

    def admit(self) -> None:
        """Count one request in, or refuse it.

        Raises:
            NotReadyError: no replica is ready.
            QueueFullError: as many as may wait do.
        """
        if not self.replicas or self.draining:
            self._rejections.rejected("not_ready")
            now = self.standing()
            raise NotReadyError(f"model {self.config.name!r} is {now.state}: {now.why}")
        if self._admitted >= self._most:
            self._rejections.rejected("queue_full")
            raise QueueFullError(
                f"{self._admitted} requests already wait for {self.config.name!r}",
                retry_after=self.retry_after,
            )
        self._admitted += 1

    def leave(self) -> None:
        """Count one admitted request out."""
        self._admitted -= 1

    def choose(self) -> R:
        """Return the replica with the least to do.

        Raises:
            NotReadyError: the last one has just gone.
        """
        if len(self.replicas) == 1:
            return self.replicas[0]
        if not self.replicas:
            raise NotReadyError(f"model {self.config.name!r} has just lost its engine")
        return min(self.replicas, key=lambda r: r.in_flight)

    def report(self) -> dict[str, Any]:
        """Return how it is, for a person or a program."""
        now = self.standing()
        return {
            "version": self.number,
            "state": now.state,
            "why": now.why,
            "since": now.since,
            "next": now.next,
            "last_progress": now.last_progress,
            "in_flight": self._admitted,
            "replicas": [
                {
                    "id": r.id,
                    "state": r.state,
                    "why": r.why,
                    "since": r.since,
                    "restarts": r.restarts,
                    "next": r.next,
                }
                for r in self._seen()
            ],
        }

    def describe(self) -> dict[str, Any]:
        """Return what is really in use, as the first replica that is ready says."""
        return dict(next((s.describe for s in self.standings.values() if s.describe), {}))
