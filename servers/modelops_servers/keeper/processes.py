"""The processes that an engine consists of, and whether somebody stopped one."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from pathlib import Path

_PROC = Path("/proc")
_STOPPED = {"T", "t"}
_SHARED = " /dev/shm/"
_DELETED = " (deleted)"
_TICKS = os.sysconf("SC_CLK_TCK")
# A kernel keeps fifteen letters of a name.
_COMPUTING = ("VLLM::Worker", "VLLM::EngineCor")
_WINDOW_SECONDS = 5.0
# Waiting takes less, and working more, also where ten others want the same core.
_WORKING_SHARE = 0.03


def family(pid: int) -> list[int]:
    """Return ``pid`` and all its descendants."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(parent) / "task").iterdir():
                # A thread may end at any moment, and a kernel may be built without this file.
                with contextlib.suppress(OSError, ValueError):
                    found += [int(p) for p in (thread / "children").read_text().split()]
    return found


class Work:
    """Whether the processes that compute do anything: by their time on a processor.

    Only of engines on CPUs: one that waits for a GPU, which may hang, spins.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, dict[int, float]]] = deque()

    def look(self, now: float, pids: list[int]) -> bool:
        """Take a sample; return whether any of ``pids`` has worked in the last seconds."""
        used = {pid: seconds for pid in pids if (seconds := _processor_seconds(pid)) is not None}
        self._samples.append((now, used))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _WINDOW_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        least = _WORKING_SHARE * (now - since)
        return any(used[pid] - before[pid] > least for pid in used.keys() & before.keys())


def workers(pids: list[int]) -> list[int]:
    """Return those of vLLM's processes that compute: its workers, else its core."""
    names = {pid: _name(pid) for pid in pids}
    for prefix in _COMPUTING:
        if found := [pid for pid, name in names.items() if name.startswith(prefix)]:
            return found
    return pids[1:]


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return (_PROC / str(pid) / "comm").read_text().strip()
    return ""


def _processor_seconds(pid: int) -> float | None:
    with contextlib.suppress(OSError, IndexError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS
    return None


def stopped(pids: list[int]) -> str | None:
    """Say which of ``pids`` does not run because somebody stopped it (SIGSTOP, a debugger)."""
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            text = (_PROC / str(pid) / "stat").read_text()
            # A process's name may hold anything, also parentheses and blanks.
            name = text[text.index("(") + 1 : text.rindex(")")]
            if text.rpartition(")")[2].split()[0] in _STOPPED:
                return f"its process {pid} ({name}) is stopped"
    return None


def shared_memory(pids: list[int]) -> set[str]:
    """Return the names in /dev/shm that ``pids`` have mapped."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / "maps").read_text().splitlines():
                _, there, name = line.partition(_SHARED)
                if there and not name.endswith(_DELETED):
                    found.add(name)
    return found
