"""A scripted engine behind an engine host's loop or inside the front, and how to ask it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from modelops.config import BatchingConfig, ModelConfig
from modelops.errors import EngineError, NotReadyError, RequestError
from modelops.protocols import Health, Tensors
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.front.hosted import HostedReplica
from modelops_servers.front.inline import InlineReplica
from modelops_servers.host.reactor import Reactor
from modelops_servers.loading import Prepared
from modelops_servers.pulse import Pulse

SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", "n")),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", "n")),),
    dims={"batch": DimRange(min=1, max=64), "n": DimRange(min=1, max=2**22)},
)
LARGE = 64 * 1024  # values: 256 KiB, so through shared memory


class ScriptedEngine:
    """Doubles ``x``; what its first value asks for besides is in ``infer``."""

    formats = ("scripted",)

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.calls: list[list[float]] = []
        self.stopped = False

    @property
    def seen(self) -> list[float]:
        """The first value of every row that it was given, in order."""
        return [value for call in self.calls for value in call]

    def start(self) -> None:
        return

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
        x = tensors["x"]
        first = [float(row[0]) for row in x]
        self.calls.append(first)
        if 0 in first:
            self.entered.set()
            assert self.gate.wait(20)
        if -1 in first:
            raise RequestError("input 'x' is negative")
        if -2 in first:
            raise ZeroDivisionError("unforeseen")
        if -3 in first:
            raise EngineError("the runtime failed")
        return {"y": x * 2 if -4 not in first else x.astype("f8")}

    def stop(self, deadline: float | None) -> None:
        self.stopped = True

    def health(self) -> Health:
        return Health("ready", "scripted", time.time())

    def describe(self) -> dict[str, Any]:
        return {}


class Counts:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.waits: list[float] = []

    def queued(self, seconds: float) -> None:
        self.waits.append(seconds)

    def batch(self, size: int) -> None:
        self.batches.append(size)

    def rejected(self, reason: str) -> None:
        raise AssertionError("a replica turns nobody away")


class Stage:
    """One replica over the scripted engine."""

    def __init__(self, max_size: int, lanes: int = 1) -> None:
        self.engine = ScriptedEngine()
        self.counts = Counts()
        self.pulse = Pulse()
        batching = BatchingConfig(max_size=max_size)
        config = ModelConfig(name="m", source=Path("m/1"), engine="scripted", batching=batching)
        artifact = SimpleNamespace(manifest=SimpleNamespace(signature=SIGNATURE))
        apart = "max_size is 1" if max_size == 1 else None
        self.prepared = Prepared(config, cast(Any, artifact), self.engine, apart, 8, lanes)
        self.replica: HostedReplica | InlineReplica
        self.reactor: Reactor | None = None

    def submit(
        self, value: float, *, rows: int = 1, n: int = 4, late: float | None = None,
        start: float | None = None,
    ) -> Any:  # fmt: skip
        """Hand over one request; ``late`` and ``start`` are seconds from now."""
        now = time.monotonic()
        x = np.full((rows, n), value, "f4")
        return self.replica.submit(
            {"x": x},
            None if late is None else now + late,
            None if start is None else now + start,
        )

    async def ask(self, value: float, **kwargs: Any) -> float:
        """Return the first value of the answer, having looked at all of it."""
        ticket = self.submit(value, **kwargs)
        answer = await ticket.future
        y = answer.outputs["y"]
        assert y.shape == (kwargs.get("rows", 1), kwargs.get("n", 4))
        assert (y == y[0, 0]).all()
        first = float(y[0, 0])
        del y
        answer.release()
        return first

    async def busy(self) -> Any:
        """Put a request into the engine that stays there until its gate opens."""
        self.engine.gate.clear()
        self.engine.entered.clear()
        ticket = self.submit(0)
        await until(self.engine.entered.is_set)
        return ticket

    @property
    def state(self) -> str:
        """How the engine is, as whoever watches this kind of replica sees it."""
        replica = self.replica
        in_flight = replica.in_flight if isinstance(replica, InlineReplica) else None
        return self.pulse.health(in_flight).state

    @property
    def shared(self) -> int:
        """Allocations of shared memory that are not given back, on both sides."""
        if self.reactor is None:
            return 0
        [connection] = self.reactor._connections
        assert isinstance(self.replica, HostedReplica)
        return self.replica._ours.taken + connection._ours.taken


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def hosted(stage: Stage, folder: Path) -> AsyncIterator[None]:
    """The engine in a host's loop on a thread of this process, asked over a real socket."""
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        stage.reactor = Reactor(listener, stage.prepared, stage.pulse)
        stage.pulse.set_state("ready", "")
        thread = threading.Thread(target=stage.reactor.serve)
        thread.start()
        replica = HostedReplica("m.1", SIGNATURE, stage.counts)
        stage.replica = replica
        await replica.connect(str(path))
        try:
            yield
        finally:
            stage.engine.gate.set()
            replica.close()
            stage.reactor.stop()
            await asyncio.to_thread(thread.join, 10)
            assert not thread.is_alive()


@contextlib.asynccontextmanager
async def inline(stage: Stage, folder: Path) -> AsyncIterator[None]:
    """The engine on a thread of the front."""
    replica = InlineReplica("m", lambda: stage.prepared, stage.counts)
    stage.replica = replica
    stage.pulse = replica.pulse
    with pytest.raises(NotReadyError):
        stage.submit(1)
    await replica.start()
    try:
        yield
    finally:
        stage.engine.gate.set()
        replica.close()
        await asyncio.to_thread(replica._thread.join, 10)
        assert not replica._thread.is_alive()
        assert stage.engine.stopped


Scenario = Callable[[Stage], Awaitable[None]]
Run = Callable[..., None]

# For tests that mean one kind only.
run_hosted = pytest.mark.parametrize("run", [hosted], ids=["hosted"], indirect=True)
run_inline = pytest.mark.parametrize("run", [inline], ids=["inline"], indirect=True)
