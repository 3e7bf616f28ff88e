"""The guardian: what it runs ends as it says, and nothing of that outlives the pipe's other end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from modelops_servers.supervisor import guardian

# Whoever says how it got here is a descendant that left its parents and its session.
DAEMON = """
import os, sys, time
def daemon():
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    print("daemon", os.getpid(), flush=True)
    time.sleep(60)
    os._exit(0)
"""
SLEEP = "import os, time; print('command', os.getpid(), flush=True); time.sleep(60)"


class Guarded:
    """``guardian.py`` over a program text, started as the supervisor starts it."""

    def __init__(self, code: str) -> None:
        reading, self.life = os.pipe()
        self.process = subprocess.Popen(
            command(reading, code),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[reading],
            start_new_session=True,
        )
        os.close(reading)

    def pid(self) -> int:
        """The next process id that is told on stdout."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline().split()[1])

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def let_go(self) -> None:
        """Close the pipe, as the kernel does for whoever dies."""
        if self.life >= 0:
            os.close(self.life)
            self.life = -1

    def end(self, seconds: float = 5) -> int:
        return self.process.wait(seconds)


def command(life: int, code: str) -> list[str]:
    return [
        *(sys.executable, "-I", "-S", str(guardian.__file__), str(life), "--"),
        *(sys.executable, "-I", "-S", "-c", code),
    ]


Guard = Callable[[str], Guarded]


@pytest.fixture
def guard() -> Iterator[Guard]:
    started: list[Guarded] = []

    def begin(code: str) -> Guarded:
        started.append(Guarded(code))
        return started[-1]

    yield begin
    for one in started:
        one.let_go()
        try:
            one.end()
        finally:
            one.process.kill()
            assert one.process.stdout is not None
            one.process.stdout.close()


def is_gone(pid: int) -> bool:
    """Whether it has ended; one that nobody has taken leave of yet has."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_gone(*pids: int, seconds: float = 3) -> None:
    end = time.monotonic() + seconds
    while left := [pid for pid in pids if not is_gone(pid)]:
        assert time.monotonic() < end, f"still there after {seconds} s: {left}"
        time.sleep(0.01)


@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_it_ends_with_the_commands_exit_code(guard: Guard, code: int) -> None:
    assert guard(f"raise SystemExit({code})").end() == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGTERM, signal.SIGSEGV])
def test_a_signal_is_an_exit_code_beyond_128(guard: Guard, number: int) -> None:
    assert guard(f"import os; os.kill(os.getpid(), {number})").end() == 128 + number


def test_when_the_pipe_closes_the_command_is_killed(guard: Guard) -> None:
    one = guard(SLEEP)
    pid = one.pid()
    one.let_go()
    assert one.end() == 0
    assert is_gone(pid)


def test_a_command_that_ignores_every_signal_is_killed(guard: Guard) -> None:
    one = guard(
        "import signal\n"
        "for n in range(1, 32):\n"
        "    if n not in (signal.SIGKILL, signal.SIGSTOP):\n"
        "        signal.signal(n, signal.SIG_IGN)\n" + SLEEP
    )
    pid = one.pid()
    one.let_go()
    assert one.end() == 0
    assert is_gone(pid)


def test_grandchildren_that_left_the_session_are_killed(guard: Guard) -> None:
    one = guard(DAEMON + "daemon()\ndaemon()\n" + SLEEP)
    pids = [one.pid() for _ in range(3)]
    assert len({os.getsid(pid) for pid in pids}) == 3
    one.let_go()
    assert one.end() == 0
    wait_gone(*pids)


def test_what_a_command_leaves_behind_is_killed_when_it_ends(guard: Guard) -> None:
    one = guard(DAEMON + "daemon()\nsys.stdin = None\ntime.sleep(0.3)\nraise SystemExit(5)")
    daemon = one.pid()
    assert one.end() == 5
    assert is_gone(daemon)


def test_stopped_processes_are_killed_too(guard: Guard) -> None:
    one = guard(DAEMON + "daemon()\n" + SLEEP)
    pids = [one.pid(), one.pid()]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    one.let_go()
    assert one.end() == 0
    wait_gone(*pids)


def test_chains_of_forks_do_not_outrun_it(guard: Guard, tmp_path: Path) -> None:
    births = tmp_path / "births"
    one = guard(
        "import os, time\n"
        f"births = os.open({str(births)!r}, os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n"
        "end = time.monotonic() + 20\n"
        "if all(os.fork() for _ in range(8)): time.sleep(0.3); os._exit(0)\n"
        "while time.monotonic() < end:\n"
        "    if os.fork(): os._exit(0)\n"
        "    os.setsid()\n"
        "    os.write(births, b'.')\n"
        "    time.sleep(0.001)\n"
    )
    assert one.end(4) == 0
    born = births.stat().st_size
    assert born > 20
    time.sleep(0.3)
    assert births.stat().st_size == born


def test_the_byte_t_asks_the_command_to_end(guard: Guard) -> None:
    one = guard(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    assert one.line() == "ready"
    os.write(one.life, b"T")
    assert one.end() == 3


def test_one_that_does_not_listen_to_t_lives_until_the_pipe_closes(guard: Guard) -> None:
    one = guard("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + SLEEP)
    pid = one.pid()
    os.write(one.life, b"T")
    time.sleep(0.2)
    assert not is_gone(pid)
    assert one.process.poll() is None
    one.let_go()
    assert one.end() == 0
    assert is_gone(pid)


def test_signals_to_itself_do_not_end_it_and_are_not_ignored_by_the_command(guard: Guard) -> None:
    one = guard(
        "import signal\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "assert signal.getsignal(signal.SIGHUP) == signal.SIG_DFL\n" + SLEEP
    )
    pid = one.pid()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        one.process.send_signal(number)
    time.sleep(0.2)
    assert one.process.poll() is None
    assert not is_gone(pid)


def test_orphans_that_end_do_not_stay_as_zombies(guard: Guard) -> None:
    one = guard(
        "import os, time\n"
        "for _ in range(20):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n"
        "        os._exit(0) if os.fork() else (time.sleep(0.1), os._exit(0))\n"
        "    os.waitpid(pid, 0)\n" + SLEEP
    )
    pid = one.pid()
    end = time.monotonic() + 5
    while len(left := psutil.Process(one.process.pid).children()) > 1:
        assert time.monotonic() < end, left
        time.sleep(0.05)
    assert [p.pid for p in left] == [pid]


def test_descriptors_that_are_only_passed_through_are_closed_in_it(guard: Guard) -> None:
    theirs, ours = os.pipe()
    reading, life = os.pipe()
    process = subprocess.Popen(
        command(reading, f"import os, time; os.close({ours}); print('closed'); time.sleep(60)"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[reading, ours],
        start_new_session=True,
    )
    os.close(reading)
    os.close(ours)
    try:
        # At its end only when nobody holds the other one, neither the command nor the guardian.
        assert os.read(theirs, 1) == b""
    finally:
        os.close(life)
        os.close(theirs)
        assert process.wait(5) == 0


def test_one_that_was_stopped_with_its_session_still_ends_with_its_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, subprocess, sys, time\n"
        "reading, life = os.pipe()\n"
        "child = subprocess.Popen(\n"
        f"    {command(0, SLEEP)!r}[:4] + [str(reading)] + {command(0, SLEEP)[5:]!r},\n"
        "    pass_fds=[reading], start_new_session=True)\n"
        "print('guardian', child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline().split()[1]) for _ in range(2)]
    try:
        os.killpg(min(pids), signal.SIGSTOP)
        parent.kill()
        parent.wait()
        wait_gone(*pids)
    finally:
        parent.stdout.close()
        for pid in pids:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)
