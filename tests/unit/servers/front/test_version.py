"""One served version: whom it admits, whom it asks, and how it says it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from modelops.config import AdmissionConfig, ModelConfig
from modelops.errors import EngineError, NotReadyError, RequestError
from modelops.protocols import State
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.front.overload import QueueFullError
from modelops_servers.front.replica import Answer
from modelops_servers.front.standing import Standing
from modelops_servers.front.version import Version

SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 2)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
    dims={"batch": DimRange(min=1, max=8)},
)
X = {"x": np.ones((1, 2), "f4")}


class Counts:
    """Metrics that keep what they are told."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)


class ScriptedReplica:
    """Answers when the test says so."""

    connected = True

    def __init__(self, id: str) -> None:
        self.id = id
        self.asked: list[Any] = []
        self.withdrawn: list[Any] = []

    @property
    def in_flight(self) -> int:
        return sum(not ticket.future.done() for ticket in self.asked)

    def submit(
        self, tensors: Any, deadline: float, start_by: float, reserved: int | None = None
    ) -> Any:
        future = asyncio.get_running_loop().create_future()
        self.asked.append(SimpleNamespace(future=future, deadline=deadline, start_by=start_by))
        return self.asked[-1]

    def withdraw(self, ticket: Any) -> None:
        self.withdrawn.append(ticket)

    def reserve(self, count: int) -> None:
        return None

    def answer(self, number: int) -> None:
        self.asked[number].future.set_result(Answer({"y": X["x"]}))


def standing(id: str, state: State, **more: Any) -> Standing:
    return Standing(id, state, f"it is {state}", 5.0, "", **more)


def version(*replicas: ScriptedReplica, fronts: int = 1, **admission: Any) -> Version:
    config = ModelConfig(
        name="m",
        source=Path("m/1"),
        engine="e",
        admission=AdmissionConfig(**{"max_in_flight": 1, "max_queue": 2, **admission}),
    )
    artifact = SimpleNamespace(
        version=1, path=Path("m/1"), manifest=SimpleNamespace(signature=SIGNATURE)
    )
    made = Version(config, cast(Any, artifact), None, cast(Any, Counts()), fronts)
    made.replicas = list(cast(Any, replicas))
    made.standings = {r.id: standing(r.id, "ready") for r in replicas}
    return made


def reasons(of: Version) -> list[str]:
    return cast(Counts, of._rejections).reasons


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(cast(Any, scenario()), 10))


def test_a_full_queue_refuses_and_names_when_to_come_back() -> None:
    one = version(ScriptedReplica("a"))
    for _ in range(3):
        one.admit()
    with pytest.raises(QueueFullError) as caught:
        one.admit()
    assert 1 <= caught.value.retry_after <= 30
    assert reasons(one) == ["queue_full"]
    one.leave()
    one.admit()
    assert one.in_flight == 3


def test_each_of_several_fronts_admits_its_share() -> None:
    one = version(ScriptedReplica("a"), fronts=2, max_queue=9)
    for _ in range(5):
        one.admit()
    with pytest.raises(QueueFullError):
        one.admit()


def test_what_engines_work_on_at_once_is_admitted_beside_the_queue() -> None:
    one = version(ScriptedReplica("a"), max_in_flight=64)
    one.standings["a"].describe = {"max_batch_size": 4}
    one.resize()
    for _ in range(6):
        one.admit()
    with pytest.raises(QueueFullError):
        one.admit()


def test_the_one_with_the_least_to_do_is_asked() -> None:
    async def scenario() -> None:
        first, second = ScriptedReplica("a"), ScriptedReplica("b")
        one = version(first, second)
        tasks = [asyncio.ensure_future(one.infer(X, time.monotonic() + 9)) for _ in range(4)]
        await asyncio.sleep(0)
        assert (first.in_flight, second.in_flight) == (2, 2)
        second.answer(0)
        second.answer(1)
        tasks.append(asyncio.ensure_future(one.infer(X, time.monotonic() + 9)))
        await asyncio.sleep(0)
        assert (first.in_flight, second.in_flight) == (2, 1)
        for number in (0, 1):
            first.answer(number)
        second.answer(2)
        await asyncio.gather(*tasks)

    run(scenario)


def test_cancelling_withdraws() -> None:
    async def scenario() -> None:
        replica = ScriptedReplica("a")
        task = asyncio.ensure_future(version(replica).infer(X, time.monotonic() + 9))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert replica.withdrawn == replica.asked
        assert len(replica.asked) == 1

    run(scenario)


def test_what_does_not_fit_never_reaches_an_engine() -> None:
    async def scenario() -> None:
        replica = ScriptedReplica("a")
        with pytest.raises(RequestError, match="x"):
            await version(replica).infer({"x": np.ones((1, 3), "f4")}, time.monotonic() + 9)
        assert replica.asked == []

    run(scenario)


def test_an_engines_failure_is_the_callers() -> None:
    async def scenario() -> None:
        replica = ScriptedReplica("a")
        task = asyncio.ensure_future(version(replica).infer(X, time.monotonic() + 9))
        await asyncio.sleep(0)
        replica.asked[0].future.set_exception(EngineError("it broke"))
        with pytest.raises(EngineError, match="it broke"):
            await task

    run(scenario)


def test_s20_draining_finishes_what_is_there_and_takes_nothing_new() -> None:
    async def scenario() -> None:
        replica = ScriptedReplica("a")
        one = version(replica)
        one.admit()
        task = asyncio.ensure_future(one.infer(X, time.monotonic() + 9))
        await asyncio.sleep(0)
        one.draining = True
        assert one.standing().state == "stopping"
        with pytest.raises(NotReadyError, match="stopping"):
            one.admit()
        assert reasons(one) == ["not_ready"]
        replica.answer(0)
        assert (await task).outputs["y"].shape == (1, 2)

    run(scenario)


def test_without_a_replica_nobody_is_admitted_and_it_says_why() -> None:
    one = version()
    one.standings = {"a": standing("a", "stuck")}
    with pytest.raises(NotReadyError, match="stuck: it is stuck"):
        one.admit()
    with pytest.raises(NotReadyError):
        one.choose()


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["ready", "failed"], "ready"),
        (["failed", "stuck"], "stuck"),
        (["failed", "loading"], "loading"),
        (["stopped", "failed"], "failed"),
        ([], "loading"),
    ],
)
def test_it_is_as_well_as_its_best_replica(states: list[State], expected: State) -> None:
    one = version(*(ScriptedReplica(str(i)) for i in range(len(states))))
    one.standings = {str(i): standing(str(i), state) for i, state in enumerate(states)}
    assert one.standing().state == expected


def test_one_that_is_said_to_be_well_but_not_reached_is_not_ready() -> None:
    one = version()
    one.standings = {"a": standing("a", "ready")}
    assert one.standing().state == "loading"
    assert "connecting" in one.standing().why


def test_the_report_says_which_why_since_when_and_how_often() -> None:
    one = version(ScriptedReplica("a"), ScriptedReplica("b"))
    one.standings["b"] = Standing("b", "failed", "signal 9", 7.0, "in 2 s", restarts=3)
    said = one.report()
    assert said["state"] == "ready"
    assert [r["state"] for r in said["replicas"]] == ["ready", "failed"]
    assert said["replicas"][1] == {
        "id": "b",
        "state": "failed",
        "why": "signal 9",
        "since": 7.0,
        "next": "in 2 s",
        "restarts": 3,
    }
