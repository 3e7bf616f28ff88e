"""One child under its guardian: messages, logs, ends, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from modelops_servers.supervisor.child import Child, Message

MODULE = "talker"
# Says what it hears; does what it is asked to.
TALKER = """
import json, os, signal, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
lines = control.makefile("rb")
def say(**message):
    control.sendall(json.dumps(message).encode() + b"\\n")
for line in lines:
    heard = json.loads(line)
    say(heard=heard, pid=os.getpid())
    match heard.get("do"):
        case "exit":
            sys.exit(heard["code"])
        case "log":
            print(heard["text"], end="", file=sys.stderr, flush=True)
        case "garbage":
            control.sendall(b"{no json\\n")
        case "long":
            say(text="x" * heard["size"])
"""


class Talk:
    """A started child, and all that it did."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.codes: list[int] = []
        self.child = Child("talker", MODULE, self._on_message, self._on_exit)

    async def heard(self) -> Message:
        async with asyncio.timeout(10):
            return await self.messages.get()

    async def ended(self, seconds: float = 10) -> int:
        async with asyncio.timeout(seconds):
            await self.child.exited.wait()
            while not self.codes:
                await asyncio.sleep(0.005)
        return self.codes[0]

    def _on_message(self, child: Child, message: Message) -> None:
        assert child is self.child
        self.messages.put_nowait(message)

    async def _on_exit(self, child: Child, code: int) -> None:
        assert child is self.child
        self.codes.append(code)


Run = Callable[[Callable[[Talk], Awaitable[None]]], None]


@pytest.fixture
def talker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{MODULE}.py").write_text(TALKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.fixture
def run(talker: None) -> Run:
    """Return what starts a child, lets a scenario do with it what it likes, and ends it."""

    def begin(scenario: Callable[[Talk], Awaitable[None]]) -> None:
        async def main() -> None:
            talk = Talk()
            await talk.child.start({"number": 0})
            try:
                await scenario(talk)
            finally:
                talk.child.kill()
                await talk.ended()

        asyncio.run(main())

    return begin


def process_of(pid: int) -> psutil.Process:
    return psutil.Process(pid)


async def gone(*processes: psutil.Process) -> None:
    """Wait until they have ended."""
    async with asyncio.timeout(5):
        while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
            await asyncio.sleep(0.01)


def test_messages_go_both_ways_in_order(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        for number in range(1, 50):
            talk.child.send({"number": number})
        assert [(await talk.heard())["heard"]["number"] for _ in range(50)] == list(range(50))

    run(scenario)


def test_what_is_said_while_it_is_being_started_arrives_after_the_first(talker: None) -> None:
    async def main() -> None:
        talk = Talk()
        starting = asyncio.create_task(talk.child.start({"number": 0}))
        await asyncio.sleep(0)
        talk.child.send({"number": 1})
        await starting
        talk.child.send({"number": 2})
        assert [(await talk.heard())["heard"]["number"] for _ in range(3)] == [0, 1, 2]
        talk.child.kill()
        await talk.ended()

    asyncio.run(main())


@pytest.mark.parametrize("after", [0, 1, 2, 3, 5, 8])
def test_a_start_that_is_given_up_leaves_nothing_and_nobody_waiting(
    talker: None, after: int
) -> None:
    async def main() -> None:
        talk = Talk()
        starting = asyncio.create_task(talk.child.start({"number": 0}))
        for _ in range(after):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        talk.child.kill()
        if after:
            async with asyncio.timeout(5):
                await talk.child.exited.wait()
        async with asyncio.timeout(5):
            while _children():
                await asyncio.sleep(0.01)

    asyncio.run(main())


def _children() -> list[psutil.Process]:
    """What runs below this process, but for the helper that the interpreter may have started."""
    return [
        p
        for p in psutil.Process().children(recursive=True)
        if p.status() != psutil.STATUS_ZOMBIE and any(MODULE in a for a in p.cmdline())
    ]


@pytest.mark.parametrize("code", [0, 1, 77])
def test_its_exit_code_is_told_once(run: Run, code: int) -> None:
    async def scenario(talk: Talk) -> None:
        talk.child.send({"do": "exit", "code": code})
        assert await talk.ended() == code
        talk.child.send({"number": 1})
        talk.child.terminate()
        talk.child.kill()
        await asyncio.sleep(0.05)
        assert talk.codes == [code]

    run(scenario)


def test_a_signal_that_ends_it_is_told_as_128_and_its_number(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        os.kill((await talk.heard())["pid"], signal.SIGSEGV)
        assert await talk.ended() == 128 + signal.SIGSEGV

    run(scenario)


def test_terminate_asks_and_kill_does_not(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        process = process_of((await talk.heard())["pid"])
        talk.child.terminate()
        assert await talk.ended() == 128 + signal.SIGTERM
        await gone(process)

    run(scenario)


@pytest.mark.parametrize("stopped", [False, True], ids=["", "stopped"])
def test_a_guardian_that_is_killed_takes_its_child_along(run: Run, stopped: bool) -> None:
    async def scenario(talk: Talk) -> None:
        process = process_of((await talk.heard())["pid"])
        if stopped:  # so that it cannot notice that nobody listens to it any more
            process.suspend()
        os.kill(talk.child.pid, signal.SIGKILL)
        assert await talk.ended() == 128 + signal.SIGKILL
        await gone(process)

    run(scenario)


def test_a_child_that_was_stopped_with_its_guardian_can_be_killed(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        process = process_of((await talk.heard())["pid"])
        os.killpg(talk.child.pid, signal.SIGSTOP)
        talk.child.kill()
        await talk.ended(5)
        await gone(process)

    run(scenario)


def test_the_end_of_its_log_is_kept_and_passed_on(
    run: Run, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(talk: Talk) -> None:
        lines = "".join(f"line {n}\n" for n in range(100))
        talk.child.send({"do": "log", "text": lines + "ü" * 200_000 + "\nthe last"})
        talk.child.send({"do": "exit", "code": 1})
        await talk.ended()
        kept = list(talk.child.log)
        assert kept[-1] == "the last"
        assert "line 99" in kept
        assert len(kept) <= 60
        assert max(map(len, kept)) <= 2**16

    run(scenario)
    assert "line 0\n" in capfd.readouterr().err


def test_one_that_cannot_be_understood_is_killed(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        talk.child.send({"do": "garbage"})
        await talk.ended()

    run(scenario)


def test_a_message_of_megabytes_arrives(run: Run) -> None:
    async def scenario(talk: Talk) -> None:
        await talk.heard()
        talk.child.send({"do": "long", "size": 5_000_000})
        await talk.heard()
        assert len((await talk.heard())["text"]) == 5_000_000

    run(scenario)


def test_where_there_is_no_room_for_a_process_nothing_stays_open(
    talker: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    async def main() -> None:
        before = psutil.Process().num_fds()
        monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
        talk = Talk()
        with pytest.raises(BlockingIOError):
            await talk.child.start({"number": 0})
        assert talk.child.exited.is_set()
        await asyncio.sleep(0.01)
        assert psutil.Process().num_fds() == before

    asyncio.run(main())


@pytest.mark.slow
def test_fifty_restarts_leave_no_descriptor_thread_or_memory(talker: None) -> None:
    ours, theirs = socket.socketpair()

    async def one() -> None:
        talk = Talk()
        await talk.child.start({"number": 0}, [theirs.fileno()])
        await talk.heard()
        os.kill(talk.child.pid, signal.SIGKILL) if talk.child.pid % 2 else talk.child.kill()
        await talk.ended()

    async def main() -> None:
        me = psutil.Process()
        for _ in range(5):
            await one()
        gc.collect()
        before = me.num_fds(), threading.active_count(), len(asyncio.all_tasks())
        for _ in range(50):
            await one()
        gc.collect()
        after = me.num_fds(), threading.active_count(), len(asyncio.all_tasks())
        assert after == before
        assert not _children()

    with ours, theirs:
        asyncio.run(main())
