"""One process that sends, seen from the parent: start it, talk to it, end it, never outlive it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson


class Worker:
    """``python -m modelops_loadtests.child SPEC SAMPLES PROCESS``; lines of JSON both ways.

    Its samples are appended to ``samples``; whatever it prints goes to ``log``.
    """

    def __init__(
        self, number: int, spec: Path, samples: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.number, self.samples, self.log = number, samples, log
        self._buffer = b""
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                # -P: the working folder must not shadow what the generator imports.
                [
                    *(sys.executable, "-P", "-m", "modelops_loadtests.child"),
                    *(str(spec), str(samples), str(number)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=dict(environment),
                start_new_session=True,  # the terminal's Ctrl-C is the parent's to handle
            )

    def fileno(self) -> int:
        """Return the descriptor that is ready where it has told something."""
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout.fileno()

    def hear(self) -> list[dict[str, Any]] | None:
        """Return what it has told since; None where it is gone."""
        chunk = os.read(self.fileno(), 1 << 16)
        if not chunk:
            return None
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [orjson.loads(line) for line in lines]

    def tell(self, message: Mapping[str, Any]) -> None:
        """Tell it something; one that is gone does not hear it."""
        assert self.process.stdin is not None  # noqa: S101
        with contextlib.suppress(OSError):
            self.process.stdin.write(orjson.dumps(dict(message), option=orjson.OPT_APPEND_NEWLINE))
            self.process.stdin.flush()

    def end(self, patience: float = 5.0) -> None:
        """End it: kindly first, then not."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def how_it_ended(self) -> str:
        """Say how a process ended that is gone: its signal or exit code, and its last word."""
        try:
            code = self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return f"it ended with {code}: {lines[-1][:300] if lines else 'it wrote nothing'}"
