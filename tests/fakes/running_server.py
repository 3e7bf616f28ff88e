"""A real ``modelops serve`` in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

START_SECONDS = 90


class Placement(StrEnum):
    """Where a model's engine runs."""

    HOSTED = "hosted"
    INLINE = "inline"

    @property
    def flags(self) -> tuple[str, ...]:
        """What ``modelops serve`` is told."""
        return ("--inline",) if self is Placement.INLINE else ()


@dataclass
class Server:
    """One running ``modelops serve``."""

    process: subprocess.Popen[str]
    url: str
    ready: dict[str, Any]
    log: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    @property
    def admin_url(self) -> str:
        url: str = self.ready["admin_url"]
        return url

    @property
    def front(self) -> psutil.Process:
        """The process that speaks HTTP."""
        children = psutil.Process(self.process.pid).children(recursive=True)
        (front,) = (
            p for p in children if "modelops_servers.front" in p.cmdline()[:4] and accepts(p)
        )
        return front

    def get(self, path: str, **kwargs: Any) -> requests.Response:
        return requests.get(self.url + path, timeout=30, **kwargs)

    def post(self, path: str, **kwargs: Any) -> requests.Response:
        return requests.post(self.url + path, timeout=60, **kwargs)

    def infer(self, model: str, *inputs: dict[str, Any], **fields: Any) -> requests.Response:
        return self.post(f"/v2/models/{model}/infer", json={"inputs": list(inputs), **fields})

    def close(self) -> None:
        """End it by force where it still runs, and close its pipes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def accepts(process: psutil.Process) -> bool:
    """Whether it waits for connections: the spare front has the same sockets, and does not."""
    folder = Path(f"/proc/{process.pid}")
    listening = {c.fd for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    watched: set[int] = set()
    for fd in (folder / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if "eventpoll" in str(fd.readlink()):
                told = (folder / "fdinfo" / fd.name).read_text()
                watched |= {int(number) for number in re.findall(r"tfd:\s*(\d+)", told)}
    return bool(listening & watched)


def write_config(path: Path, models: list[dict[str, Any]], **sections: Any) -> Path:
    """Write a ``modelops.yaml`` (JSON is YAML) that serves ``models``, and return its path."""
    path.write_text(json.dumps({"version": 1, "models": models, **sections}))
    return path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "modelops", "serve", *arguments]


def start(
    *arguments: str, env: dict[str, str] | None = None, seconds: float = START_SECONDS
) -> Server:
    """Start a server on a free port and wait until it says that it is ready."""
    process = subprocess.Popen(
        command(*arguments, "--port", "0", "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )
    log: list[str] = []
    assert process.stderr is not None
    assert process.stdout is not None
    reader = threading.Thread(target=log.extend, args=(process.stderr,), daemon=True)
    reader.start()
    watchdog = threading.Timer(seconds, process.kill)
    watchdog.start()
    line = process.stdout.readline()
    watchdog.cancel()
    if not line or "event" not in line:
        process.kill()
        reader.join(5)
        Server(process, "", {}).close()
        pytest.fail(f"the server did not start: {line}\n{''.join(log)}")
    ready = json.loads(line)
    return Server(process, ready["url"], ready, log)


Starter = Callable[..., Server]
