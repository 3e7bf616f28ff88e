"""What only a replica in an engine host has: shared memory, frames, a connection to lose."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scripted_engine import LARGE, SIGNATURE, Run, Stage, run_hosted, until

from modelops.errors import EngineError, NotReadyError
from modelops_servers.front.hosted import HostedReplica
from modelops_servers.host.reactor import Reactor


@run_hosted
def test_large_results_come_without_a_copy_and_hold_until_they_are_released(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        first = await stage.submit(1, n=LARGE).future
        assert first.shared
        second = await stage.submit(2, n=LARGE).future
        assert (first.outputs["y"] == 2).all()
        assert (second.outputs["y"] == 4).all()
        assert stage.shared == 2
        first.release()
        first.release()
        third = await stage.submit(3, n=LARGE).future
        assert (second.outputs["y"] == 4).all()
        for answer in (second, third):
            answer.release()
        await until(lambda: stage.shared == 0)
        small = await stage.submit(1).future
        assert not small.shared

    run(scenario)


@run_hosted
def test_a_body_that_was_read_into_shared_memory_is_used_where_it_lies(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        replica = cast(HostedReplica, stage.replica)
        for _ in range(3):
            offset = replica.reserve(LARGE * 4)
            assert offset is not None
            x = np.frombuffer(replica.reserved(offset, LARGE * 4), "f4").reshape(1, LARGE)
            x[:] = 5
            ticket = replica.submit({"x": x}, None, None, offset)
            assert replica._ours.taken == 1, "it lies there already"
            answer = await ticket.future
            assert (answer.outputs["y"] == 10).all()
            answer.release()
        offset = replica.reserve(100)
        assert offset is not None
        replica.release(offset)
        await until(lambda: stage.shared == 0)

    run(scenario)


@run_hosted
def test_a_lost_connection_fails_all_at_once_and_says_so(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        replica = cast(HostedReplica, stage.replica)
        lost: list[HostedReplica] = []
        replica.on_lost = lost.append
        assert stage.reactor is not None
        tickets = [await stage.busy(), stage.submit(1), stage.submit(2, n=LARGE)]
        await asyncio.sleep(0.05)
        [connection] = stage.reactor._connections
        began = time.monotonic()
        connection.socket.shutdown(socket.SHUT_RDWR)
        for ticket in tickets:
            with pytest.raises(EngineError, match="ended before it answered"):
                await asyncio.wait_for(ticket.future, 2)
        assert time.monotonic() - began < 1
        assert lost == [replica]
        assert not replica.connected
        assert replica.in_flight == 0
        with pytest.raises(NotReadyError):
            stage.submit(1)
        replica.withdraw(tickets[1])
        stage.engine.gate.set()
        await until(lambda: not cast(Reactor, stage.reactor)._connections)

    run(scenario)


@run_hosted
def test_a_front_that_is_gone_costs_one_more_call_at_most(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.busy()
        for i in range(1, 41):
            stage.submit(i)
        await asyncio.sleep(0.05)
        stage.replica.close()
        await asyncio.sleep(0.05)
        stage.engine.gate.set()
        assert stage.reactor is not None
        await until(lambda: not cast(Reactor, stage.reactor)._connections)
        await until(lambda: len(cast(Reactor, stage.reactor)._batcher) == 0)
        assert len(stage.engine.calls) <= 2

    run(scenario)


@run_hosted
def test_a_front_can_connect_while_the_engine_is_busy(run: Run, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        running = await stage.busy()
        second = HostedReplica("m.2", SIGNATURE, stage.counts)
        await asyncio.wait_for(second.connect(str(tmp_path / "s")), 2)
        ticket = second.submit({"x": np.full((1, 4), 3, "f4")}, None, None)
        stage.engine.gate.set()
        assert (await ticket.future).outputs["y"][0, 0] == 6
        (await running.future).release()
        second.close()

    run(scenario)


@run_hosted
def test_who_connects_and_says_nothing_holds_nobody_up(run: Run, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(str(tmp_path / "s"))
            began = time.monotonic()
            for _ in range(5):
                assert await stage.ask(1) == 2
            assert time.monotonic() - began < 2

    run(scenario)


@run_hosted
def test_bytes_that_are_no_frame_end_that_connection_only(run: Run, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        other = HostedReplica("m.2", SIGNATURE, stage.counts)
        await other.connect(str(tmp_path / "s"))
        assert other._transport is not None
        other._transport.write(b"\x01" + bytes(100))
        await until(lambda: not other.connected)
        assert await stage.ask(1) == 2

    run(scenario)


@run_hosted
def test_a_host_that_is_gone_cannot_be_connected_to(run: Run, tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        replica = HostedReplica("m.2", SIGNATURE, stage.counts)
        with pytest.raises(OSError, match="No such file"):
            await replica.connect(str(tmp_path / "nobody"))
        with pytest.raises(NotReadyError):
            replica.submit({"x": np.zeros((1, 4), "f4")}, None, None)

    run(scenario)


@run_hosted
def test_a_slow_reader_gets_every_answer(run: Run) -> None:
    async def scenario(stage: Stage) -> None:
        # Each just too small for shared memory: together more than a socket holds.
        tickets = [stage.submit(i, n=16_000) for i in range(1, 201)]
        # The loop reads nothing for a while.
        await asyncio.sleep(0)
        time.sleep(0.3)
        for number, ticket in enumerate(tickets, 1):
            assert (await ticket.future).outputs["y"][0, 15_999] == 2 * number

    run(scenario)


@run_hosted
@pytest.mark.parametrize("turns", range(8))
def test_close_while_it_connects_leaves_no_connection(run: Run, tmp_path: Path, turns: int) -> None:
    async def scenario(stage: Stage) -> None:
        other = HostedReplica("m.2", SIGNATURE, stage.counts)
        connecting = asyncio.ensure_future(other.connect(str(tmp_path / "s")))
        for _ in range(turns):
            await asyncio.sleep(0)
        other.close()
        await asyncio.wait([connecting], timeout=5)
        assert isinstance(connecting.exception(), OSError | None)
        reactor = cast(Reactor, stage.reactor)
        await until(lambda: len(reactor._connections) == 1)
        assert not other.connected

    run(scenario)


def test_close_does_not_wait_for_a_host_that_never_answers(tmp_path: Path) -> None:
    async def main() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            replica = HostedReplica("m.1", SIGNATURE, cast(Any, None))
            connecting = asyncio.ensure_future(replica.connect(str(tmp_path / "s")))
            accepted, _ = await asyncio.to_thread(listener.accept)
            await asyncio.sleep(0.05)
            replica.close()
            with pytest.raises(ConnectionAbortedError):
                await asyncio.wait_for(connecting, 2)
            with accepted:
                accepted.settimeout(2)
                assert accepted.recv(1) == b"A"
                assert accepted.recv(1) == b"", "the front has left"

    asyncio.run(main())
