"""What the front asks of one replica of a model, whether its engine is here or in a host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import numpy.typing as npt

from modelops.errors import ModelopsError
from modelops.protocols import Tensors

Outputs = dict[str, npt.NDArray[Any]]


class Observer(Protocol):
    """What a replica tells about its work; called on the loop or from an engine's thread."""

    def queued(self, seconds: float) -> None:
        """A request waited this long for the engine."""

    def batch(self, size: int) -> None:
        """The engine answered this many rows in one call."""

    def rejected(self, reason: str) -> None:
        """A request was turned away before the engine saw it."""


class Answer:
    """The outputs of one request; views that hold until ``release``."""

    __slots__ = ("_free", "outputs")

    def __init__(self, outputs: Outputs, free: Callable[[], None] | None = None) -> None:
        self.outputs = outputs
        self._free = free

    @property
    def shared(self) -> bool:
        """Whether the outputs lie in memory that ``release`` gives back."""
        return self._free is not None

    def release(self) -> None:
        """Give back the memory under the outputs; they must not be looked at afterwards."""
        free, self._free = self._free, None
        if free is not None:
            free()


class Lease:
    """Memory shared with a replica's engine, set aside for the body of one request."""

    __slots__ = ("_replica", "memory", "offset")

    def __init__(self, replica: Lender, offset: int, count: int) -> None:
        self._replica: Lender | None = replica
        self.offset = offset
        self.memory = replica.reserved(offset, count)

    @property
    def replica(self) -> Lender | None:
        """Whose memory it is; None once it was handed over or given back."""
        return self._replica

    def hand_over(self) -> None:
        """The replica gives it back itself, with its answer."""
        self._replica = None

    def release(self) -> None:
        """Give it back, unless it was handed over."""
        replica, self._replica = self._replica, None
        if replica is not None:
            replica.release(self.offset)


class Ticket(Protocol):
    """One request that was handed to a replica."""

    @property
    def future(self) -> asyncio.Future[Answer]:
        """Gets the answer."""


class Replica(Protocol):
    """One engine that answers tensors, seen from the event loop."""

    id: str

    @property
    def in_flight(self) -> int:
        """Requests that it has been given and has not answered."""

    def submit(
        self,
        tensors: Tensors,
        deadline: float | None,
        start_by: float | None,
        reserved: int | None = None,
    ) -> Any:
        """Hand over one request and return its ``Ticket``.

        Raises:
            NotReadyError: it cannot be reached.
        """

    def withdraw(self, ticket: Any) -> None:
        """Say that nobody waits for this request any more."""

    def lease(self, count: int) -> Lease | None:
        """Set aside ``count`` bytes that the engine sees without a copy; None: no such memory."""

    def abandon(self, error: ModelopsError) -> None:
        """Fail all that it has not answered."""

    def close(self) -> None:
        """Let go of it; what it has not answered fails."""


class Lender(Replica, Protocol):
    """A replica that shares memory with its engine."""

    def reserved(self, offset: int, count: int) -> memoryview:
        """Return the memory that a lease set aside."""

    def release(self, offset: int) -> None:
        """Give back what a lease set aside for a request that was never handed over."""
