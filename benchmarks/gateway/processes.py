"""One contender's processes: started, asked, measured from outside, ended to the last child."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from gateway.bodies import Body

_START_SECONDS = 120
_STOP_SECONDS = 20
_SETTLE_SECONDS = 30
_SETTLE_STEP = 0.2
_IDLE_SHARE = 0.4  # LitServe's polling alone takes a quarter of a core


class Running:
    """One started contender at ``url``."""

    def __init__(
        self, name: str, command: Sequence[str], port: int, log: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("wb") as file:
            self._process = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=Path(__file__).parents[1],
                env={**os.environ, **env},
                start_new_session=True,
            )

    def wait(
        self, path: str, body: Body, *, seconds: float = _START_SECONDS, pause: float = 0.1
    ) -> None:
        """Return once a real request is answered; ask again after each ``pause``."""
        end = time.monotonic() + seconds
        while True:
            try:
                self.post(path, body)
            except (OSError, urllib.error.URLError) as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    self.stop()
                    tail = self._log.read_text(errors="replace")[-2000:]
                    raise SystemExit(f"{self.name} did not start: {error}\n{tail}") from None
                time.sleep(pause)
            else:
                return

    def post(self, path: str, body: Body) -> bytes:
        """Return the answer's body; raise where the status is not 2xx."""
        request = urllib.request.Request(self.url + path, body.data, body.headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: bytes = answer.read()
            return found

    def get(self, path: str) -> str:
        """Return a page's text."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def tree(self) -> list[psutil.Process]:
        """The process and all its descendants that live."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._process.pid)
            return [parent, *parent.children(recursive=True)]
        return []

    def cpu_seconds(self) -> float:
        """Processor time that the tree has used so far."""
        total = 0.0
        for process in self.tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def settle(self) -> None:
        """Return when it has finished what a client that left had asked for."""
        end = time.monotonic() + _SETTLE_SECONDS
        before = self.cpu_seconds()
        while time.monotonic() < end:
            time.sleep(_SETTLE_STEP)
            now = self.cpu_seconds()
            if now - before < _IDLE_SHARE * _SETTLE_STEP:
                return
            before = now
        note(f"{self.name} was still busy {_SETTLE_SECONDS} s after its last client left")

    def pause(self) -> None:
        """Keep it from using the processor while another is measured."""
        for process in self.tree():
            process.suspend()

    def resume(self) -> None:
        """Let it run again, children first, so that no parent finds a child silent."""
        for process in reversed(self.tree()):
            process.resume()

    def stop(self) -> None:
        """End it by SIGTERM, and by force what is still there."""
        family = self.tree()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        _, alive = psutil.wait_procs(family, timeout=2)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait()


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def note(text: str) -> None:
    """Say how far the run is, beside its results."""
    print(text, file=sys.stderr, flush=True)
