"""The processes of a running server: found, watched, and asked while they are harmed."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import requests
from running_server import Server, accepts, command

X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
SETTLE_SECONDS = 40
"""How long anything may take for which the issue has no figure, on a machine that is busy."""


def steps(count: int) -> dict[str, Any]:
    return {"name": "steps", "datatype": "INT64", "shape": [1], "data": [count]}


def processes(server: Server | int, part: str) -> list[psutil.Process]:
    """Return the server's processes of one kind: "host", "front", "json_worker", "guardian"."""
    pid = server if isinstance(server, int) else server.process.pid
    found = []
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            arguments = process.cmdline()
            guards = any(a.endswith("guardian.py") for a in arguments)
            names = {a.rsplit(".", 1)[-1] for a in arguments if a.startswith("modelops_servers.")}
            if guards if part == "guardian" else (not guards and part in names):
                found.append(process)
    return found


def fronts(server: Server) -> list[psutil.Process]:
    """Return the fronts at work: all but the spare one, and those that are starting."""
    found = []
    for front in processes(server, "front"):
        with contextlib.suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            if accepts(front):
                found.append(front)
    return found


def hosts_of(server: Server, model: str) -> list[psutil.Process]:
    """Return the engine hosts of one model, by what they were told to listen at."""
    ids = {r["id"] for m in report(server)["models"] if m["name"] == model for r in m["replicas"]}
    sockets = {id.rpartition("/")[2] + ".sock" for id in ids}
    held = []
    for host in processes(server, "host"):
        with contextlib.suppress(psutil.NoSuchProcess):
            paths = {Path(c.laddr).name for c in host.net_connections("unix") if c.laddr}
            if paths & sockets:
                held.append(host)
    return held


def report(server: Server) -> dict[str, Any]:
    said: dict[str, Any] = server.get("/readyz").json()
    return said


def model_of(server: Server, name: str) -> dict[str, Any]:
    [said] = [m for m in report(server)["models"] if m["name"] == name]
    return said


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; one that nobody has taken leave of yet has."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_until(
    what: Callable[[], Any], seconds: float = SETTLE_SECONDS, every: float = 0.02
) -> Any:
    """Poll until ``what`` is true, and return it; the seconds it took are bounded."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(requests.ConnectionError, psutil.NoSuchProcess):
            if got := what():
                return got
        assert time.monotonic() < end, f"not so after {seconds:g} s"
        time.sleep(every)


def wait_ready(server: Server, *models: str) -> None:
    for model in models:
        wait_until(lambda model=model: server.get(f"/v2/models/{model}/ready").ok)


def wait_all_replicas(server: Server, model: str) -> None:
    wait_until(lambda: all(r["state"] == "ready" for r in model_of(server, model)["replicas"]))


def wait_replaced(server: Server, model: str, host: psutil.Process) -> None:
    """Wait until the model is ready with another host."""
    wait_until(lambda: is_gone(host) and hosts_of(server, model))
    wait_ready(server, model)


def slowdown() -> float:
    """How many times longer than its processor time a process takes here and now."""
    began, before = time.monotonic(), os.times()
    subprocess.run([sys.executable, "-c", "import fastapi, numpy"], check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    spent -= before.children_user + before.children_system
    return max(1.0, (time.monotonic() - began) / spent)


def metric(server: Server, name: str, **labels: str) -> float:
    """Sum the samples of ``name`` that carry ``labels``."""
    total = 0.0
    for line in server.get("/metrics").text.splitlines():
        match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
        if match and match[1] == name:
            said = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
            if labels.items() <= said.items():
                total += float(match[3])
    return total


@dataclass
class Caller:
    """Asks one model again and again from its own thread; ``every`` seconds between the begins."""

    server: Server
    path: str
    body: dict[str, Any] | None
    every: float
    statuses: list[tuple[float, int | str]] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Caller:
        self._thread = threading.Thread(target=self._work)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def failed(self) -> list[tuple[float, int | str]]:
        return [s for s in self.statuses if s[1] != 200]

    def _work(self) -> None:
        with requests.Session() as session:
            while not self._done.wait(self.every):
                method = "GET" if self.body is None else "POST"
                try:
                    reply = session.request(
                        method, self.server.url + self.path, json=self.body, timeout=30
                    )
                    self.statuses.append((time.monotonic(), reply.status_code))
                except requests.ConnectionError as error:
                    self.statuses.append((time.monotonic(), repr(error)))


def infers(server: Server, model: str, *inputs: dict[str, Any], every: float = 0.02) -> Caller:
    return Caller(server, f"/v2/models/{model}/infer", {"inputs": list(inputs)}, every)


def gets(server: Server, path: str, every: float = 0.1) -> Caller:
    return Caller(server, path, None, every)


def unix(stamp: str) -> float:
    """Return the UNIX seconds of a time as reports have it."""
    return datetime.fromisoformat(stamp).timestamp()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def begin(*arguments: str, port: int, **options: Any) -> subprocess.Popen[str]:
    """Start a server and do not wait for it."""
    return subprocess.Popen(
        command(*arguments, "--port", str(port)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )
