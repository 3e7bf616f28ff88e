"""One served model over a scripted engine: order, admission, deadlines, cancellation, stuck."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from modelops.config import AdmissionConfig, ModelConfig
from modelops.errors import (
    DeadlineError,
    EngineError,
    IntegrityError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from modelops.protocols import Health, Tensors
from modelops_servers.front.health import readiness
from modelops_servers.loading import Loaded
from modelops_servers.model import ServedModel


class Counts:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.reasons: list[str] = []

    def queued(self, seconds: float) -> None:
        assert seconds >= 0

    def batch(self, size: int) -> None:
        self.batches.append(size)

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)


class ScriptedEngine:
    """Doubles ``x``; waits for ``gate`` where x is 0, fails where it is negative."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Event()
        self.seen: list[float] = []
        self.stopped = False

    def start(self) -> None:
        return

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
        value = float(tensors["x"][0])
        self.seen.append(value)
        if value == 0:
            self.entered.set()
            assert self.gate.wait(20)
        if value == -1:
            raise RequestError("input 'x' is negative")
        if value == -2:
            raise ZeroDivisionError("unforeseen")
        return {"y": tensors["x"] * 2}

    def stop(self, deadline: float | None) -> None:
        self.stopped = True

    def health(self) -> Health:
        return Health("ready", "scripted", time.time())

    def describe(self) -> dict[str, Any]:
        return {}


def run(
    scenario: Callable[[ServedModel, ScriptedEngine, Counts], Awaitable[None]],
    *,
    max_queue: int = 8,
    progress_seconds: float = 30.0,
) -> None:
    engine, counts = ScriptedEngine(), Counts()
    config = ModelConfig.model_construct(
        name="m", admission=AdmissionConfig(max_queue=max_queue), source="nowhere"
    )
    artifact = SimpleNamespace(version=1)
    loaded = Loaded(cast(Any, artifact), engine, None)

    async def main() -> None:
        model = ServedModel(config, lambda _: loaded, counts, progress_seconds=progress_seconds)
        assert model.health().state == "loading"
        with pytest.raises(NotReadyError):
            await model.infer(x(1), None)
        counts.reasons.clear()
        await model.start()
        try:
            await asyncio.wait_for(cast(Any, scenario(model, engine, counts)), 20)
        finally:
            engine.gate.set()
            assert await model.stop()
        assert engine.stopped
        assert model.health().state == "stopped"

    asyncio.run(main())


def x(value: float) -> dict[str, Any]:
    return {"x": np.array([value], "f4")}


def test_answers_come_back_to_whom_they_belong() -> None:
    async def scenario(model: ServedModel, _: ScriptedEngine, counts: Counts) -> None:
        answers = await asyncio.gather(*(model.infer(x(i), None) for i in range(1, 9)))
        assert [float(a["y"][0]) for a in answers] == [2.0 * i for i in range(1, 9)]
        assert counts.batches == [1] * 8
        assert model.in_flight == 0

    run(scenario)


def test_s21_one_failure_is_nobody_elses() -> None:
    async def scenario(model: ServedModel, _: ScriptedEngine, __: Counts) -> None:
        got = await asyncio.gather(
            *(model.infer(x(v), None) for v in (1, -1, 2, -2, 3)), return_exceptions=True
        )
        assert isinstance(got[1], RequestError)
        assert isinstance(got[3], EngineError)
        assert [float(cast(Any, got[i])["y"][0]) for i in (0, 2, 4)] == [2, 4, 6]
        assert model.health().state == "ready"

    run(scenario)


def test_a_full_queue_refuses_and_names_when_to_come_back() -> None:
    async def scenario(model: ServedModel, engine: ScriptedEngine, counts: Counts) -> None:
        waiting = [asyncio.ensure_future(model.infer(x(v), None)) for v in (0, 1, 2)]
        await asyncio.sleep(0.05)
        with pytest.raises(OverloadedError) as caught:
            await model.infer(x(3), None)
        assert cast(Any, caught.value).retry_after >= 1
        assert counts.reasons == ["queue_full"]
        engine.gate.set()
        await asyncio.gather(*waiting)
        await model.infer(x(3), None)

    run(scenario, max_queue=2)


def test_s1_what_nobody_waits_for_never_reaches_the_engine() -> None:
    async def scenario(model: ServedModel, engine: ScriptedEngine, counts: Counts) -> None:
        running = asyncio.ensure_future(model.infer(x(0), None))
        gone = asyncio.ensure_future(model.infer(x(7), None))
        late = asyncio.ensure_future(model.infer(x(8), time.monotonic() + 0.05))
        await asyncio.sleep(0.1)
        gone.cancel()
        await asyncio.sleep(0)
        assert model.in_flight == 2
        engine.gate.set()
        await running
        with pytest.raises(DeadlineError):
            await late
        assert engine.seen == [0]
        assert counts.reasons == ["deadline"]

    run(scenario)


def test_s4_stuck_is_one_endless_call_while_work_waits_and_heals() -> None:
    async def scenario(model: ServedModel, engine: ScriptedEngine, _: Counts) -> None:
        running = asyncio.ensure_future(model.infer(x(0), None))
        await asyncio.sleep(0.3)
        assert model.health().state == "ready", "busy with nothing waiting is not stuck"
        waiting = asyncio.ensure_future(model.infer(x(1), None))
        await asyncio.sleep(0)
        health = model.health()
        assert health.state == "stuck"
        assert "1 wait" in health.why
        ready, report = readiness([model])
        assert not ready
        assert report["not_ready"] == ["m"]
        assert set(report["models"][0]) >= {"why", "since", "next"}
        with pytest.raises(NotReadyError):
            await model.infer(x(2), None)
        engine.gate.set()
        await asyncio.gather(running, waiting)
        assert model.health().state == "ready"

    run(scenario, progress_seconds=0.1)


def test_busy_is_not_stuck_when_such_calls_were_seen_to_end() -> None:
    async def scenario(model: ServedModel, engine: ScriptedEngine, _: Counts) -> None:
        first = asyncio.ensure_future(model.infer(x(0), None))
        await asyncio.sleep(0.2)
        engine.gate.set()
        await first
        engine.gate.clear()
        again = [asyncio.ensure_future(model.infer(x(v), None)) for v in (0, 1)]
        await asyncio.sleep(0.3)
        assert model.health().state == "ready"
        engine.gate.set()
        await asyncio.gather(*again)

    run(scenario, progress_seconds=0.1)


def test_s20_draining_finishes_what_is_there_and_takes_nothing_new() -> None:
    async def scenario(model: ServedModel, engine: ScriptedEngine, _: Counts) -> None:
        running = asyncio.ensure_future(model.infer(x(0), None))
        await asyncio.sleep(0.05)
        drain = asyncio.ensure_future(model.drain(time.monotonic() + 10))
        await asyncio.sleep(0.05)
        assert model.health().state == "stopping"
        with pytest.raises(NotReadyError):
            await model.infer(x(1), None)
        engine.gate.set()
        assert float((await running)["y"][0]) == 0
        await drain

    run(scenario)


def test_what_cannot_be_loaded_is_failed_and_says_why() -> None:
    def load(_: ModelConfig) -> Loaded:
        raise IntegrityError("model.onnx was altered")

    async def main() -> None:
        config = ModelConfig.model_construct(name="m", admission=AdmissionConfig())
        model = ServedModel(config, load, Counts())
        with pytest.raises(IntegrityError):
            await model.start()
        assert model.health().state == "failed"
        assert "altered" in model.health().why

    asyncio.run(main())
