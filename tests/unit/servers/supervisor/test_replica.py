"""One engine host as the supervisor judges it, with a clock and a child that do as told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelops.config import ModelConfig
from modelops.errors import EngineError, MissingEnvironmentError
from modelops_servers.dataplane.failure import told
from modelops_servers.supervisor import backoff, replica
from modelops_servers.supervisor.replica import SILENT_SECONDS, STUCK_SECONDS, HostReplica

LOAD_SECONDS = 20.0


class World:
    """The clock, and the children that were started."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.children: list[FakeChild] = []
        self.refuse: OSError | None = None
        self.hold: asyncio.Event | None = None
        self.changes = 0
        self.host = HostReplica(
            "m/1/0@5",
            ModelConfig(name="m", source=Path("m/1"), engine="e", load_seconds=LOAD_SECONDS),
            Path("/run"),
            self._on_change,
        )

    @property
    def child(self) -> FakeChild:
        return self.children[-1]

    def look(self, after: float) -> None:
        """Let ``after`` seconds pass and look once."""
        self.now += after
        self.host.look(self.now)

    def _on_change(self) -> None:
        self.changes += 1


class FakeChild:
    """Stands in for a process; says and ends as the test has it."""

    world: World

    def __init__(self, name: str, module: str, on_message: Any, on_exit: Any) -> None:
        self.log = ["loading the weights", "no room left"]
        self.exited = asyncio.Event()
        self.killed = 0
        self.sent: list[dict[str, Any]] = []
        self.pid = 1
        self._on_message = on_message
        self._on_exit = on_exit
        self.world.children.append(self)

    async def start(self, first: dict[str, Any]) -> None:
        self.sent.append(first)
        if self.world.refuse is not None:
            self.exited.set()
            raise self.world.refuse
        if self.world.hold is not None:
            try:
                await self.world.hold.wait()
            except asyncio.CancelledError:
                self.exited.set()
                raise

    def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def kill(self) -> None:
        self.killed += 1

    def says(self, event: str, state: str = "ready", **more: Any) -> None:
        body = {"why": f"it is {state}", "since": 0.0, "last_progress": None, **more}
        self._on_message(self, {"event": event, "state": state, **body})

    def ready(self) -> None:
        self.says("ready", describe={"provider": "cpu"})

    async def ends(self, code: int) -> None:
        self.exited.set()
        await self._on_exit(self, code)
        for _ in range(5):
            await asyncio.sleep(0)


Run = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a scenario over a fresh world."""

    def begin(scenario: Callable[[World], Awaitable[None]]) -> None:
        async def main() -> None:
            world = World()
            clock = SimpleNamespace(monotonic=lambda: world.now, time=lambda: world.now)
            monkeypatch.setattr(replica, "time", clock)
            monkeypatch.setattr(backoff, "time", clock)
            monkeypatch.setattr(FakeChild, "world", world, raising=False)
            monkeypatch.setattr(replica, "Child", FakeChild)
            await scenario(world)

        asyncio.run(asyncio.wait_for(main(), 10))

    return begin


def test_silence_makes_it_stuck_and_a_beat_ready_again(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        assert host.state == "ready"
        world.look(SILENT_SECONDS - 0.1)
        assert host.state == "ready"
        world.look(0.2)
        said = host.told()
        assert said["state"] == "stuck"
        assert "no sign of life for 3.1 s" in said["why"]
        assert "killed and restarted" in said["next"]
        assert said["since"] == world.now
        changes = world.changes
        world.look(1)
        assert world.changes == changes
        assert host.told()["since"] == world.now - 1
        world.child.says("beat")
        assert host.state == "ready"
        assert host.told()["next"] == "nothing to do"
        world.look(1)
        assert world.child.killed == 0

    run(scenario)


def test_who_is_silent_for_long_is_killed_and_restarted(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        world.look(SILENT_SECONDS + 0.1)
        world.look(STUCK_SECONDS - 0.2)
        assert world.child.killed == 0
        world.look(0.3)
        assert world.child.killed == 1
        first = world.child
        await first.ends(0)
        assert host.restarts == 1
        assert world.child is not first
        assert host.state == "loading"

    run(scenario)


def test_who_says_that_it_is_stuck_is_killed_though_it_beats(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        for _ in range(int(STUCK_SECONDS)):
            assert world.child.killed == 0
            world.child.says("beat", "stuck", why="one call has been in it for 40 s while 3 wait")
            assert host.state == "stuck"
            assert "while 3 wait" in host.told()["why"]
            world.look(1)
        assert world.child.killed == 1
        await world.child.ends(0)
        assert host.restarts == 1

    run(scenario)


def test_stuck_twice_is_counted_from_the_second_time(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.host.start()
        world.child.ready()
        for _ in range(3):
            world.child.says("beat", "stuck")
            world.look(STUCK_SECONDS - 1)
            world.child.says("beat")
            world.look(1)
        assert world.child.killed == 0

    run(scenario)


def test_silence_while_loading_is_no_fault_but_loading_for_ever_is(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.look(LOAD_SECONDS - 1)
        assert host.state == "loading"
        assert world.child.killed == 0
        world.look(2)
        assert world.child.killed == 1
        await world.child.ends(0)
        assert host.failure is not None
        assert "not ready 20 s after its start" in host.failure.message
        assert "no room left" in host.failure.message
        assert host.failure.exit_code == 1

    run(scenario)


@pytest.mark.parametrize(
    ("code", "said"), [(0, "exit code 0"), (1, "exit code 1"), (134, "signal 6"), (137, "signal 9")]
)
def test_every_end_that_nobody_asked_for_is_a_crash(run: Run, code: int, said: str) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        states = []
        host._on_change = lambda: states.append(host.told())
        await world.child.ends(code)
        assert states[0]["state"] == "failed"
        assert states[0]["why"].startswith("it ended")
        assert said in states[0]["why"]
        assert states[0]["next"] == "it is restarted at once"
        assert states[-1]["state"] == "loading"
        assert states[-1]["restarts"] == 1
        assert states[-1]["id"] != states[0]["id"]
        assert states[-1]["socket"] != states[0]["socket"]

    run(scenario)


def test_crash_after_crash_waits_longer_and_says_how_long(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        await world.child.ends(1)
        world.child.ready()
        await world.child.ends(1)
        assert host.state == "failed"
        assert host.told()["next"] == "it is restarted in 0.5 s"
        await host.stop()

    run(scenario)


def test_what_it_says_of_its_failure_is_what_is_told(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        error = MissingEnvironmentError("no CUDA here", hint="--provider cpu")
        world.child._on_message(world.child, {"event": "failed", "error": told(error)})
        await world.child.ends(1)
        assert isinstance(host.failure, MissingEnvironmentError)
        assert host.failure.hint == "--provider cpu"

    run(scenario)


def test_a_new_try_does_not_hide_why_the_last_one_failed(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        assert "ended" not in host.told()["why"]
        error = MissingEnvironmentError("no CUDA here\nand a long log", hint="--provider cpu")
        world.child._on_message(world.child, {"event": "failed", "error": told(error)})
        await world.child.ends(1)
        assert len(world.children) == 2
        assert host.state == "loading"
        assert host.told()["why"].endswith("its last start ended so: no CUDA here")
        assert "tried again" in host.told()["next"]
        world.child.says("beat", "loading", why="loading weights")
        changes = world.changes
        world.child.says("beat", "loading", why="loading weights")
        assert world.changes == changes
        assert host.told()["why"] == "loading weights; its last start ended so: no CUDA here"
        world.child.ready()
        assert host.told()["why"] == "it is ready"

    run(scenario)


def test_no_room_for_a_process_is_a_failure_that_is_tried_again(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        world.refuse = BlockingIOError("Resource temporarily unavailable")
        await world.child.ends(137)
        assert isinstance(host.failure, EngineError)
        assert "temporarily unavailable" in host.told()["why"]
        assert host.told()["next"] == "it is restarted in 0.5 s"
        world.refuse = None
        await asyncio.sleep(0.6)
        world.child.ready()
        assert host.state == "ready"
        assert host.failure is None

    run(scenario)


def test_it_can_be_stopped_in_the_middle_of_a_restart(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        world.child.ready()
        world.hold = asyncio.Event()
        await world.child.ends(1)
        assert host.state == "loading"
        await asyncio.wait_for(host.stop(1), 3)
        assert host.state == "stopped"

    run(scenario)


def test_what_an_earlier_process_says_is_ignored(run: Run) -> None:
    async def scenario(world: World) -> None:
        host = world.host
        await host.start()
        first = world.child
        await first.ends(1)
        assert world.child is not first
        first.ready()
        await first.ends(1)
        assert host.state == "loading"
        assert host.restarts == 1

    run(scenario)


def test_a_beat_before_ready_does_not_make_it_ready(run: Run) -> None:
    async def scenario(world: World) -> None:
        await world.host.start()
        world.child.says("beat", "ready")
        assert world.host.state == "loading"

    run(scenario)
