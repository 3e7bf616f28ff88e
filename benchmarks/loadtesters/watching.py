"""Runs one command to its end and knows how much CPU it used at every moment."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import psutil

_STEP_SECONDS = 0.1
_SECONDS = 240


class Watched:
    """A command, run to its end by ``run``; its output goes to ``log``.

    Raises:
        RuntimeError: it failed, or did not end in time; the log's tail is its text.
    """

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str]) -> None:
        self._command, self._log, self._env = list(command), log, {**os.environ, **env}
        self._times: list[float] = []
        self._used: list[float] = []

    def run(self, *, ok: Sequence[int] = (0,)) -> None:
        """Run it."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as file:
            process = subprocess.Popen(
                self._command, stdout=file, stderr=subprocess.STDOUT, env=self._env,
                cwd=Path(__file__).parents[1], start_new_session=True,
            )  # fmt: skip
        over = threading.Event()
        watching = threading.Thread(target=self._watch, args=(process.pid, over))
        watching.start()
        try:
            code = process.wait(_SECONDS)
        except BaseException:
            for member in _tree(process.pid):
                member.kill()
            process.wait()
            raise
        finally:
            over.set()
            watching.join()
        if code not in ok:
            tail = self._log.read_text(errors="replace")[-1500:]
            raise RuntimeError(f"it ended with {code}\n{tail}")

    def cores(self, begin: float, end: float) -> float:
        """Return how many cores it used between two moments of ``time.perf_counter``."""
        at = np.interp((begin, end), self._times, self._used)
        return float((at[1] - at[0]) / (end - begin))

    def _watch(self, pid: int, over: threading.Event) -> None:
        known: dict[int, float] = {}
        while not over.wait(_STEP_SECONDS):
            for member in _tree(pid):
                try:
                    times = member.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                known[member.pid] = times.user + times.system  # kept when it is gone
            self._times.append(time.perf_counter())
            self._used.append(sum(known.values()))


def _tree(pid: int) -> list[psutil.Process]:
    try:
        parent = psutil.Process(pid)
        return [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return []
