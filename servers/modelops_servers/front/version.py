"""One served version of a model, as this front sees it: its replicas, admission, how it is."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from modelops.artifact import Artifact
from modelops.config import ModelConfig
from modelops.errors import NotReadyError
from modelops.protocols import State, Tensors
from modelops.signature import Signature
from modelops_servers.check import InputCheck
from modelops_servers.front.metrics import ModelMetrics
from modelops_servers.front.overload import QueueFullError
from modelops_servers.front.replica import Answer, Lease, Replica
from modelops_servers.text import TextInputs

_RETRY_AFTER = (1, 30)
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


class Version:
    """Takes requests for one artifact; all methods are called on the event loop."""

    def __init__(
        self,
        config: ModelConfig,
        artifact: Artifact,
        text: TextInputs | None,
        metrics: ModelMetrics,
        fronts: int,
    ) -> None:
        self.config = config
        self.artifact = artifact
        self.text = text
        self.check = InputCheck(artifact.manifest.signature)
        self.replicas: list[Replica] = []
        self.standings: dict[str, Standing] = {}
        """What is told of each replica."""
        self.apart: dict[str, Standing] = {}
        """What this front found of replicas that are told to be ready: it cannot reach them."""
        self.draining = False
        self._metrics = metrics
        self._fronts = fronts
        self._admitted = 0
        self._queue_seconds = config.admission.queue_seconds
        self.resize()
        self._mean_seconds = 0.0
        self._last_answer: float | None = None

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, as the manifest has them."""
        return self.artifact.manifest.signature

    @property
    def number(self) -> str:
        """The version, as the protocols show it."""
        return str(self.artifact.version)

    @property
    def in_flight(self) -> int:
        """Requests that wait or are being answered."""
        return self._admitted

    def use(self, replica: Replica) -> None:
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
        engine = self.describe()
        calls = self.config.replicas * int(engine.get("lanes", 1))
        at_once = calls * int(engine.get("max_batch_size", 1))
        most = min(admission.max_in_flight, at_once) + admission.max_queue
        # Each front admits its share: they do not ask each other.
        self._most = math.ceil(most / self._fronts)

    def admit(self) -> None:
        """Count one request in, or refuse it.

        Raises:
            NotReadyError: no replica is ready.
            QueueFullError: as many as may wait do.
        """
        if not self.replicas or self.draining:
            self._metrics.rejected("not_ready")
            now = self.standing()
            raise NotReadyError(f"model {self.config.name!r} is {now.state}: {now.why}")
        if self._admitted >= self._most:
            self._metrics.rejected("queue_full")
            low, high = _RETRY_AFTER
            raise QueueFullError(
                f"{self._admitted} requests already wait for {self.config.name!r}",
                retry_after=max(low, min(high, math.ceil(self._mean_seconds))),
            )
        self._admitted += 1

    def leave(self) -> None:
        """Count one admitted request out."""
        self._admitted -= 1

    def choose(self) -> Replica:
        """Return the replica with the least to do.

        Raises:
            NotReadyError: the last one has just gone.
        """
        if len(self.replicas) == 1:
            return self.replicas[0]
        if not self.replicas:
            raise NotReadyError(f"model {self.config.name!r} has just lost its engine")
        return min(self.replicas, key=lambda r: r.in_flight)

    def lease(self, count: int) -> Lease | None:
        """Set aside memory that an engine sees without a copy; None where there is none."""
        return self.choose().lease(count) if self.replicas else None

    async def infer(
        self,
        tensors: Tensors,
        deadline: float,
        lease: Lease | None = None,
    ) -> Answer:
        """Answer one admitted request; cancelling the call withdraws it.

        The tensors are checked here, before they can meet others in a batch. ``deadline`` is on
        ``time.monotonic``'s clock. ``lease`` is memory that they lie in.

        Raises:
            RequestError: they do not fit the signature.
            NotReadyError, OverloadedError, DeadlineError, EngineError: see ``modelops.errors``.
        """
        began = time.monotonic()
        self.check(tensors)
        start_by = began + self._queue_seconds
        chosen: Replica
        if lease is not None and lease.replica is not None:
            chosen = lease.replica
            ticket = chosen.submit(tensors, deadline, start_by, lease.offset)
            lease.hand_over()
        else:
            chosen = self.choose()
            ticket = chosen.submit(tensors, deadline, start_by)
        try:
            answer: Answer = await ticket.future
        except asyncio.CancelledError:
            chosen.withdraw(ticket)
            raise
        self._last_answer = time.time()
        self._mean_seconds += (time.monotonic() - began - self._mean_seconds) / 16
        return answer

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
