"""One served version of a model of tensors."""

from __future__ import annotations

import asyncio
import time

from modelops.artifact import Artifact
from modelops.config import ModelConfig
from modelops.protocols import Tensors
from modelops.signature import Signature
from modelops_servers.check import InputCheck
from modelops_servers.front.metrics import ModelMetrics
from modelops_servers.front.replica import Answer, Lease, Replica
from modelops_servers.front.served import Served
from modelops_servers.text import TextInputs


class Version(Served[Replica]):
    """Takes requests for one artifact; all methods are called on the event loop."""

    def __init__(
        self,
        config: ModelConfig,
        artifact: Artifact,
        text: TextInputs | None,
        metrics: ModelMetrics,
        fronts: int,
    ) -> None:
        self.artifact = artifact
        self.text = text
        self.check = InputCheck(artifact.manifest.signature)
        self._queue_seconds = config.admission.queue_seconds
        super().__init__(config, str(artifact.version), artifact.path, metrics, fronts)

    @property
    def signature(self) -> Signature:
        """The inputs and outputs, as the manifest has them."""
        return self.artifact.manifest.signature

    @property
    def at_once(self) -> int:
        """How many requests its engines can work on together."""
        engine = self.describe()
        calls = self.config.replicas * int(engine.get("lanes", 1))
        return calls * int(engine.get("max_batch_size", 1))

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
        self.answered(began)
        return answer
