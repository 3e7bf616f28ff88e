"""Calls side by side: what shares an engine and a queue shares nothing else."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from scripted_engine import LARGE, SIGNATURE, Run, Stage, until

from modelops.config import BatchingConfig
from modelops.errors import ModelopsError
from modelops_servers.batching import Batcher, Item, Outputs
from modelops_servers.lanes import Lanes
from modelops_servers.pulse import Pulse


def test_as_many_calls_run_at_once_as_there_are_lanes(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = [await stage.busy()]
        running.append(stage.submit(0))
        await until(lambda: len(stage.engine.calls) == 2)
        running.append(stage.submit(0))
        await asyncio.sleep(0.1)
        assert len(stage.engine.calls) == 2
        stage.engine.gate.set()
        for ticket in running:
            (await ticket.future).release()
        assert len(stage.engine.calls) == 3

    run(scenario, lanes=2)


def test_nobody_waits_behind_a_long_call_while_a_lane_is_free(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        long = await stage.busy()
        assert await stage.ask(5) == 10
        assert await asyncio.gather(*(stage.ask(i) for i in range(1, 20))) == [
            2.0 * i for i in range(1, 20)
        ]
        assert not long.future.done()
        stage.engine.gate.set()
        (await long.future).release()

    run(scenario, lanes=2)


def test_idle_lanes_do_not_split_what_came_together(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = [await stage.busy(), stage.submit(0)]
        await until(lambda: len(stage.engine.calls) == 2)
        waiting = [asyncio.ensure_future(stage.ask(i)) for i in range(1, 9)]
        await asyncio.sleep(0.05)
        stage.engine.gate.set()
        for ticket in running:
            (await ticket.future).release()
        await asyncio.gather(*waiting)
        assert sorted(map(len, stage.engine.calls)) == [1, 1, 8]

    run(scenario, lanes=2)


def test_a_storm_of_all_kinds_gives_everybody_his_own(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        rng = random.Random(3)

        async def one(value: int) -> None:
            await asyncio.sleep(rng.random() / 10)
            n = rng.choice([1, 4, 5, LARGE])
            if value % 7 == 0:
                ticket = stage.submit(value, n=n)
                await asyncio.sleep(rng.random() / 200)
                ticket.future.cancel()
                stage.replica.withdraw(ticket)
                return
            kind = rng.choice([value, value, value, -1, -3])
            if kind == value:
                assert await stage.ask(value, n=n, rows=rng.randint(1, 3)) == 2.0 * value
            else:
                with pytest.raises(ModelopsError, match=r"negative|runtime failed"):
                    await stage.ask(kind, n=n)

        await asyncio.gather(*(one(value) for value in range(1, 300)))
        await until(lambda: stage.replica.in_flight == 0)
        await until(lambda: stage.shared == 0)

    run(scenario, lanes=3)


class _Desk:
    """Hands in one item a time and fails where it is told to."""

    def __init__(self, batcher: Batcher, fail_in: str) -> None:
        self._batcher = batcher
        self._fail_in = fail_in
        self._woken = threading.Event()
        self._given = 0

    def fill(self, wait: bool) -> bool:
        if self._given == 1:  # the other lane: nothing more comes
            if self._fail_in == "fill":
                raise ZeroDivisionError("fill")
            assert self._woken.wait(10)
            return False
        self._given += 1
        x = np.ones((1, 4), "f4")
        self._batcher.put(Item({"x": x}, enqueued=time.monotonic()))
        return True

    def refuse(self, items: Sequence[tuple[Item, ModelopsError]], now: float) -> None:
        raise AssertionError("nobody is refused")

    def hand_out(
        self, batch: Sequence[Item], results: Sequence[Outputs | ModelopsError], began: float
    ) -> None:
        raise ZeroDivisionError("hand_out")

    def wake(self) -> None:
        self._woken.set()


@pytest.mark.parametrize("lanes", [1, 2])
@pytest.mark.parametrize("where", ["fill", "hand_out"])
def test_a_lane_that_fails_ends_them_all_and_is_told(lanes: int, where: str) -> None:
    engine = SimpleNamespace(infer=lambda tensors, _: {"y": tensors["x"] * 2})
    prepared = SimpleNamespace(engine=engine, signature=SIGNATURE, lanes=lanes)
    batcher = Batcher(SIGNATURE, BatchingConfig(), together=True)
    work = Lanes(cast(Any, prepared), batcher, Pulse(), _Desk(batcher, where))
    with pytest.raises(ZeroDivisionError):
        work.work()
    assert not [t for t in threading.enumerate() if t.name.startswith("lane-")]
