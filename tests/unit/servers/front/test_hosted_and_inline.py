"""A scripted engine behind a real engine host's loop and inside the front: one set of rules."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
import pytest
from scripted_engine import LARGE, Run, Stage, run_inline, until

from modelops.errors import (
    DeadlineError,
    EngineError,
    IntegrityError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from modelops_servers.front.inline import InlineReplica
from modelops_servers.loading import Prepared


@pytest.mark.parametrize("n", [4, LARGE])
@pytest.mark.parametrize("max_size", [1, 8])
@pytest.mark.parametrize("lanes", [1, 3])
def test_answers_belong_to_whom_they_belong(run: Run, lanes: int, max_size: int, n: int) -> None:
    async def scenario(stage: Stage) -> None:
        got = await asyncio.gather(*(stage.ask(i, n=n) for i in range(1, 65)))
        assert got == [2.0 * i for i in range(1, 65)]
        assert sorted(stage.engine.seen) == list(range(1, 65))
        assert sum(stage.counts.batches) == 64
        assert len(stage.counts.waits) == 64
        assert min(stage.counts.waits) >= 0
        assert stage.replica.in_flight == 0

    run(scenario, max_size=max_size, lanes=lanes)


@pytest.mark.parametrize("lanes", [1, 2])
def test_requests_of_many_rows_and_sizes_are_not_mixed_up(run: Run, lanes: int) -> None:
    async def scenario(stage: Stage) -> None:
        sizes = [(i, 1 + i % 5, 4 + i % 3) for i in range(1, 60)]
        got = await asyncio.gather(*(stage.ask(v, rows=r, n=n) for v, r, n in sizes))
        assert got == [2.0 * v for v, _, _ in sizes]

    run(scenario, lanes=lanes)


def test_an_idle_engine_runs_at_once_and_a_busy_one_gathers(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        waiting = [asyncio.ensure_future(stage.ask(i)) for i in range(1, 9)]
        await asyncio.sleep(0.05)
        assert stage.engine.calls == [[0]]
        stage.engine.gate.set()
        (await running.future).release()
        await asyncio.gather(*waiting)
        assert len(stage.engine.calls) == 2
        assert stage.counts.batches == [1, 8]

    run(scenario)


def test_s21_one_failure_is_nobody_elses(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        values = (1, -1, 2, -2, 3, -3, 4, 5)
        waiting = [asyncio.ensure_future(stage.ask(v)) for v in values]
        await asyncio.sleep(0.05)
        stage.engine.gate.set()
        (await running.future).release()
        got = await asyncio.gather(*waiting, return_exceptions=True)
        assert [g for v, g in zip(values, got, strict=True) if v > 0] == [2, 4, 6, 8, 10]
        failed = dict(zip(values, got, strict=True))
        assert isinstance(failed[-1], RequestError)
        assert isinstance(failed[-3], EngineError)
        assert "the runtime failed" in failed[-3].message
        assert isinstance(failed[-2], EngineError)
        assert "unforeseen" not in failed[-2].message, "a stranger's message is not for clients"
        assert stage.pulse.health().state == "ready"
        assert await stage.ask(6) == 12

    run(scenario)


def test_s1_what_was_withdrawn_never_runs(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        gone, kept = stage.submit(7), stage.submit(8)
        stage.replica.withdraw(gone)
        gone.future.cancel()
        await asyncio.sleep(0.05)
        stage.engine.gate.set()
        (await running.future).release()
        (await kept.future).release()
        await until(lambda: stage.replica.in_flight == 0)
        assert stage.engine.seen == [0, 8]
        assert stage.shared == 0

    run(scenario)


def test_what_was_withdrawn_while_it_ran_harms_nobody(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        stage.replica.withdraw(running)
        running.future.cancel()
        later = asyncio.ensure_future(stage.ask(3, n=LARGE))
        await asyncio.sleep(0.05)
        stage.engine.gate.set()
        assert await later == 6
        await until(lambda: stage.replica.in_flight == 0)
        await until(lambda: stage.shared == 0)

    run(scenario)


def test_a_deadline_that_passes_in_the_queue_drops_the_request(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        late, kept = stage.submit(7, late=0.05), stage.submit(8, late=20)
        await asyncio.sleep(0.1)
        stage.engine.gate.set()
        with pytest.raises(DeadlineError):
            await late.future
        (await kept.future).release()
        (await running.future).release()
        assert stage.engine.seen == [0, 8]

    run(scenario)


def test_who_has_not_begun_in_time_is_told_that_it_is_overloaded(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        late, kept = stage.submit(7, start=0.05), stage.submit(8, start=20)
        await asyncio.sleep(0.1)
        stage.engine.gate.set()
        with pytest.raises(OverloadedError):
            await late.future
        (await kept.future).release()
        (await running.future).release()
        assert stage.engine.seen == [0, 8]

    run(scenario)


def test_one_that_has_begun_in_time_may_take_longer(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        stage.engine.gate.clear()
        ticket = stage.submit(0, start=0.3)
        await until(stage.engine.entered.is_set)
        await asyncio.sleep(0.4)
        stage.engine.gate.set()
        (await ticket.future).release()

    run(scenario)


def test_abandon_fails_all_that_is_in_flight_at_once(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        tickets = [await stage.busy(), stage.submit(1), stage.submit(2, n=LARGE)]
        tickets[1].future.cancel()
        began = time.monotonic()
        stage.replica.abandon(NotReadyError("the server stopped"))
        for ticket in (tickets[0], tickets[2]):
            with pytest.raises(NotReadyError, match="the server stopped"):
                await ticket.future
        assert time.monotonic() - began < 0.5
        stage.engine.gate.set()
        # The answers that still come are nobody's; what they lay in is given back.
        assert await stage.ask(3, n=LARGE) == 6
        await until(lambda: stage.replica.in_flight == 0)
        await until(lambda: stage.shared == 0)

    run(scenario)


def test_in_flight_counts_what_is_not_answered(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        waiting = [stage.submit(i) for i in range(1, 4)]
        assert stage.replica.in_flight == 4
        stage.engine.gate.set()
        for ticket in (running, *waiting):
            (await ticket.future).release()
        assert stage.replica.in_flight == 0

    run(scenario)


def test_close_fails_what_is_in_flight(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        tickets = [await stage.busy(), stage.submit(1)]
        stage.replica.close()
        for ticket in tickets:
            with pytest.raises(EngineError):
                await asyncio.wait_for(ticket.future, 2)

    run(scenario)


@pytest.mark.parametrize("left", [False, True], ids=["", "its caller left"])
def test_s4_a_stuck_call_is_told_and_heals(run: Run, left: bool) -> None:
    async def scenario(stage: Stage) -> None:
        stage.pulse._progress_seconds = 0.1
        running = await stage.busy()
        await asyncio.sleep(0.2)
        assert stage.state == "ready", "busy with nobody waiting is not stuck"
        if left:
            stage.replica.withdraw(running)
            running.future.cancel()
        waiting = asyncio.ensure_future(stage.ask(1))
        await until(lambda: stage.state == "stuck")
        stage.engine.gate.set()
        assert await waiting == 2
        assert stage.state == "ready"
        if not left:
            (await running.future).release()

    run(scenario)


def test_busy_is_not_stuck_where_calls_were_seen_to_take_as_long(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        stage.pulse._progress_seconds = 0.1
        first = await stage.busy()
        await asyncio.sleep(0.3)
        stage.engine.gate.set()
        (await first.future).release()
        again = await stage.busy()
        waiting = asyncio.ensure_future(stage.ask(1))
        for _ in range(20):
            await asyncio.sleep(0.02)
            assert stage.state == "ready"
        stage.engine.gate.set()
        (await again.future).release()
        await waiting

    run(scenario)


def test_many_large_requests_leave_no_shared_memory_taken(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        for _ in range(6):
            await asyncio.gather(
                *(stage.ask(i, n=LARGE, rows=1 + i % 3) for i in range(1, 17)),
                *(stage.ask(i) for i in range(1, 9)),
            )
        await until(lambda: stage.shared == 0)
        assert stage.replica.in_flight == 0

    run(scenario)


def test_large_requests_that_fail_give_their_memory_back(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        values = (1, -1, 2, -2, 3, -3)
        got = await asyncio.gather(*(stage.ask(v, n=LARGE) for v in values), return_exceptions=True)
        assert [isinstance(g, ModelopsError) for g in got] == [v < 0 for v in values]
        late = stage.submit(5, n=LARGE, late=-1)
        with pytest.raises(DeadlineError):
            await late.future
        await until(lambda: stage.shared == 0)

    run(scenario)


def test_an_answer_that_comes_as_its_caller_leaves_gives_its_memory_back(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        async def wait(ticket: Any) -> None:
            try:
                (await ticket.future).release()
            except asyncio.CancelledError:
                stage.replica.withdraw(ticket)
                raise

        left = 0
        for _ in range(20):
            ticket = stage.submit(1, n=LARGE)
            tasks: list[asyncio.Task[None]] = []
            # As a deadline does it: in the very turn of the loop in which the answer came.
            ticket.future.add_done_callback(lambda _, tasks=tasks: tasks[0].cancel())
            tasks.append(asyncio.ensure_future(wait(ticket)))
            await asyncio.wait(tasks)
            left += tasks[0].cancelled()
        assert left > 0
        await until(lambda: stage.replica.in_flight == 0)
        await until(lambda: stage.shared == 0, 3)

    run(scenario)


def test_an_answer_of_the_wrong_dtype_is_an_error_and_no_ones_end(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        with pytest.raises(EngineError, match="float64"):
            await stage.ask(-4, n=LARGE)
        assert await stage.ask(1) == 2
        await until(lambda: stage.shared == 0)

    run(scenario)


@run_inline
def test_what_cannot_be_loaded_says_why(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        def altered() -> Prepared:
            raise IntegrityError("model.onnx was altered")

        def surprise() -> Prepared:
            raise ZeroDivisionError("by zero")

        for prepare, kind, said in (
            (altered, IntegrityError, "altered"),
            (surprise, EngineError, "ZeroDivisionError"),
        ):
            replica = InlineReplica("m", prepare, stage.counts)
            with pytest.raises(kind, match=said):
                await replica.start()
            assert replica.pulse.health().state == "failed"
            assert said in replica.pulse.health().why
            with pytest.raises(NotReadyError):
                replica.submit({"x": np.zeros((1, 4), "f4")}, None, None)

    run(scenario)
