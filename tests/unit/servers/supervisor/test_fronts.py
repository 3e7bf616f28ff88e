"""Fronts and the spare one as the supervisor keeps them, with children that do as told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from modelops_servers.supervisor import backoff, fronts, spare
from modelops_servers.supervisor.fronts import Front
from modelops_servers.supervisor.spare import DEAD_SECONDS, IMPORT_SECONDS, Spare


class World:
    """The clock, the children that were started, one front and the spare."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.children: list[FakeChild] = []
        self.refuse: OSError | None = None
        self.events: list[dict[str, Any]] = []
        self.spare = Spare([7])
        self.front = Front(
            0, {"index": 0}, [7], self.spare, lambda _, m: self.events.append(m), self._on_ask
        )

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    async def look(self, after: float = 0.25, patience: float = 0) -> None:
        """Let ``after`` seconds pass and look once, as the supervisor does."""
        self.now += after
        self.front.look(self.now, patience)
        self.spare.look(self.now, wanted=self.front.state != "loading")
        await settle()

    async def serving(self) -> FakeChild:
        """Start the front the normal way, without a spare, and let it serve."""
        await self.front.start()
        self.child.says("serving")
        return self.child

    async def with_spare(self) -> tuple[FakeChild, FakeChild]:
        """Let the front serve and a spare stand by; return both."""
        first = await self.serving()
        await self.look()
        self.child.says("beat")
        return first, self.child

    async def _on_ask(self, _: dict[str, Any]) -> dict[str, Any]:
        return {}


class FakeChild:
    """Stands in for a process; says and ends as the test has it."""

    world: World

    def __init__(self, name: str, module: str, on_message: Any, on_exit: Any) -> None:
        assert module == "modelops_servers.front"
        self.name = name
        self.log = ["its last line"]
        self.exited = asyncio.Event()
        self.is_there = True
        self.killed = 0
        self.sent: list[dict[str, Any]] = []
        self.fds: list[int] = []
        self.hand_over(name, on_message, on_exit)
        self.world.children.append(self)

    def hand_over(self, name: str, on_message: Any, on_exit: Any) -> None:
        self.name = name
        self._on_message = on_message
        self._on_exit = on_exit

    async def start(self, first: dict[str, Any] | None, fds: list[int]) -> None:
        self.fds = fds
        if self.world.refuse is not None:
            self.exited.set()
            raise self.world.refuse
        if first is not None:
            self.sent.append(first)

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def kill(self) -> None:
        self.killed += 1
        self.exited.set()

    def says(self, event: str) -> None:
        self._on_message(self, {"event": event})

    async def ends(self, code: int = 137) -> None:
        self.is_there = False
        self.exited.set()
        await self._on_exit(self, code)
        await settle()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


Run = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a scenario over a fresh world."""

    def begin(scenario: Callable[[World], Awaitable[None]]) -> None:
        async def main() -> None:
            world = World()
            clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now)
            for module in (backoff, fronts, spare):
                monkeypatch.setattr(module, "time", clock)
            monkeypatch.setattr(FakeChild, "world", world, raising=False)
            monkeypatch.setattr(fronts, "Child", FakeChild)
            monkeypatch.setattr(spare, "Child", FakeChild)
            await scenario(world)

        asyncio.run(asyncio.wait_for(main(), 10))

    return begin


# The spare.


def test_a_spare_waits_for_its_first_message_and_is_no_front(run: Run) -> None:
    async def scenario(world: World) -> None:
        first, waiting = await world.with_spare()
        assert waiting is not first
        assert waiting.sent == [], "it is told nothing, no keys either"
        assert waiting.fds == [7], "it has the sockets already"
        assert world.front.told()["restarts"] == 0
        for _ in range(8):
            await world.look()
        assert len(world.children) == 2, "one is enough"

    run(scenario)


def test_a_front_that_dies_is_the_spare_at_once_and_another_follows_it(run: Run) -> None:
    async def scenario(world: World) -> None:
        first, waiting = await world.with_spare()
        world.front.tell([{"name": "m"}])
        await first.ends()
        assert world.children == [first, waiting]
        assert waiting.name == "front-0"
        assert waiting.sent[0]["topology"] == [{"name": "m"}]
        assert world.front.state == "loading"
        await world.look()
        assert len(world.children) == 2, "none is started beside a front that starts"
        waiting.says("serving")
        assert world.front.state == "ready"
        await world.look()
        assert len(world.children) == 3
        assert world.front.told()["restarts"] == 1
        # What was the spare ends as any front does.
        await waiting.ends(1)
        ended = [e["why"] for e in world.events if e["event"] == "ended"]
        assert ended == ["ended with exit code 137", "ended with exit code 1"]

    run(scenario)


def test_a_spare_that_still_imports_is_taken(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        await world.look()
        importing = world.child
        await first.ends()
        assert world.children == [first, importing]
        assert importing.sent

    run(scenario)


def test_where_there_is_no_spare_a_front_starts_the_normal_way(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        await first.ends()
        assert len(world.children) == 2
        assert world.child.name == "front-0"
        assert world.child.sent

    run(scenario)


def test_a_spare_whose_end_is_not_told_yet_is_not_taken(run: Run) -> None:
    async def scenario(world: World) -> None:
        first, waiting = await world.with_spare()
        waiting.is_there = False
        await first.ends()
        assert len(world.children) == 3
        assert world.child.sent
        await waiting.ends()
        assert world.front.state == "loading", "it was nobody's end but its own"

    run(scenario)


def test_a_spare_that_dies_is_replaced_ever_later(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.serving()
        waits = []
        for count in range(2, 14):
            began = world.now
            while len(world.children) < count:
                await world.look()
                world.front._silence.heard()
            waits.append(world.now - began)
            world.child.says("beat")
            await world.child.ends()
        assert waits[:2] == [0.25, 0.25]
        assert waits == sorted(waits)
        assert 29 < waits[-1] < 31
        assert world.front.state == "ready"

    run(scenario)


def test_no_room_for_a_spare_is_tried_again_and_no_fronts_trouble(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.serving()
        world.refuse = BlockingIOError("Resource temporarily unavailable")
        await world.look()
        await world.look()
        count = len(world.children)
        await world.look(0.1)
        assert len(world.children) == count
        world.refuse = None
        await world.look(0.5)
        assert len(world.children) == count + 1
        assert world.front.state == "ready"

    run(scenario)


@pytest.mark.parametrize("imported", [False, True])
def test_a_spare_that_falls_silent_is_killed(run: Run, imported: bool) -> None:
    async def scenario(world: World) -> None:
        await world.serving()
        await world.look()
        waiting = world.child
        if imported:
            waiting.says("beat")
        await world.look()
        limit = DEAD_SECONDS if imported else IMPORT_SECONDS
        await world.look(limit - 0.5)
        assert waiting.killed == 0
        world.front._silence.heard()
        await world.look(1)
        assert waiting.killed == 1

    run(scenario)


def test_stop_ends_the_spare_and_prepares_no_other(run: Run) -> None:
    async def scenario(world: World) -> None:
        _, waiting = await world.with_spare()
        await world.spare.stop()
        assert waiting.killed == 1
        await waiting.ends()
        await world.look(60)
        assert len(world.children) == 2
        assert world.spare.take("front-0", lambda *_: None, waiting._on_exit) is None

    run(scenario)


# Beats.


def test_a_front_that_falls_silent_is_said_to_be_stuck_then_killed_and_restarted(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        await world.look()
        await world.look(3.5)
        said = world.front.told()
        assert said["state"] == "stuck"
        assert "no sign of life for 3.5 s" in said["why"]
        assert "killed and restarted" in said["next"]
        assert world.front.serving, "what it has in flight may still be answered"
        await world.look(DEAD_SECONDS - 3.6)
        assert first.killed == 0
        await world.look(0.2)
        assert first.killed == 1
        await first.ends(0)
        ended = next(e for e in world.events if e["event"] == "ended")
        assert ended["why"] == "was killed: no sign of life for 10 s"
        assert world.front.told()["restarts"] == 1

    run(scenario)


def test_one_beat_heals(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        for _ in range(6):
            await world.look()
            await world.look(DEAD_SECONDS - 1)
            assert world.front.state == "stuck"
            first.says("beat")
            assert world.front.told()["state"] == "ready"
        assert first.killed == 0

    run(scenario)


def test_an_engine_that_loads_inside_a_front_may_keep_it_silent(run: Run) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        await world.look(patience=100)
        await world.look(99, patience=100)
        assert first.killed == 0
        await world.look(2, patience=100)
        assert first.killed == 1

    run(scenario)


def test_a_front_that_does_not_come_up_is_killed_though_it_beats(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.front.start()
        first = world.child
        await world.look()
        for _ in range(int(IMPORT_SECONDS)):
            first.says("beat")
            await world.look(0.9)
        assert first.killed == 0
        for _ in range(10):
            first.says("beat")
            await world.look(0.9)
        assert first.killed >= 1
        await first.ends(0)
        assert "did not come up" in str(world.front.failure)

    run(scenario)


@pytest.mark.parametrize(("served", "delay"), [(1, "in 0.5 s"), (6, "at once")])
def test_who_had_served_well_is_restarted_at_once(run: Run, served: float, delay: str) -> None:
    async def scenario(world: World) -> None:
        first = await world.serving()
        await first.ends()
        world.child.says("serving")
        world.now += served
        seen = []
        world.front._on_event = lambda _, m: seen.append((m["event"], world.front.told()["next"]))
        await world.child.ends()
        assert dict(seen)["ended"] == f"it is restarted {delay}"

    run(scenario)
