"""Runs one command and makes sure that nothing of it outlives the process that asked for it.

A program of its own, with the standard library alone: ``guardian.py LIFE_FD -- COMMAND…``. LIFE_FD
is the read end of a pipe whose other end only the supervisor holds. When that end closes, which the
kernel sees to however the supervisor dies, the command and all its descendants are killed: also
those that left its session, because orphans are handed to this process. A byte ``T`` in the pipe
asks the command to end (SIGTERM). When the command ends by itself, what it left behind is killed,
and this process ends as it did.

Parent-death signals do not do this: they follow the thread that started the child, reach no
grandchild, and are forgotten across exec of a set-uid program. One only wakes this process, which
somebody may have stopped together with what it guards.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER
_SETTLE_SECONDS = 5.0
_QUICK_ROUNDS = 100


def main(arguments: list[str]) -> int:
    """Run the command of ``arguments`` until it ends or the pipe does; return its exit code."""
    life = int(arguments[0])
    command = arguments[arguments.index("--") + 1 :]
    os.set_inheritable(life, False)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    prctl = ctypes.CDLL(None).prctl
    prctl(_SUBREAPER, 1, 0, 0, 0)
    prctl(_DEATH_SIGNAL, signal.SIGCONT, 0, 0, 0)
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGTERM],
    )
    _close_inherited(life)
    return _watch(life, pid)


def _watch(life: int, pid: int) -> int:
    child = os.pidfd_open(pid)
    signal.signal(signal.SIGCHLD, lambda *_: _reap_orphans(pid))
    poll = select.poll()
    poll.register(life, select.POLLIN)
    poll.register(child, select.POLLIN)
    while True:
        ready = {fd for fd, _ in poll.poll()}
        if life in ready:
            asked = os.read(life, 64)
            if not asked:
                _kill_all()
                return 0
            if b"T" in asked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
        elif child in ready:
            status = os.waitpid(pid, 0)[1]
            _kill_all()
            return _as_exit_code(status)


def _reap_orphans(command: int) -> None:
    """Take leave of the command's orphans that ended: whoever adopts them must, or they stay."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == command:
                return
            os.waitpid(ended.si_pid, 0)


def _close_inherited(life: int) -> None:
    """Close what was only passed through: the other ends must see the command's end."""
    # pathlib takes longer to import than all of this takes to run.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        fd = int(name)
        if fd > 2 and fd != life:
            with contextlib.suppress(OSError):
                os.close(fd)


def _kill_all() -> None:
    """Kill every descendant, again and again: one may be born while the list is read."""
    end = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < end:
        _kill(_descendants())
        # Whose parent is killed becomes a child of this process, and its list is read far faster
        # than a process can fork: nobody gets away from it by forking.
        for _ in range(_QUICK_ROUNDS):
            _kill(_children())
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
        time.sleep(0.005)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    # A kernel may be built without this file; then only the other list is there.
    with (
        contextlib.suppress(OSError),
        open(f"/proc/self/task/{os.getpid()}/children") as f,  # noqa: PTH123
    ):
        return [int(pid) for pid in f.read().split()]
    return []


def _descendants() -> list[int]:
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with (
                contextlib.suppress(OSError, ValueError, IndexError),
                open(f"/proc/{name}/stat") as f,  # noqa: PTH123
            ):
                # The command's name may hold anything, also parentheses and blanks.
                parents[int(name)] = int(f.read().rpartition(")")[2].split()[1])
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [pid for pid, parent in parents.items() if parent in level]
        found += level
    return found


def _as_exit_code(status: int) -> int:
    if os.WIFSIGNALED(status):
        return 128 + os.WTERMSIG(status)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
