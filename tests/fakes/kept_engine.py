"""A real engine under a real keeper and guardian, as the supervisor runs it, without fronts."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import psutil

from modelops.config import ModelConfig
from modelops_servers.supervisor.replica import HostReplica

T = TypeVar("T")


class KeptEngine:
    """One replica on an event loop in a thread; ``states`` is what fronts would have been told."""

    def __init__(self, config: ModelConfig, runtime: Path) -> None:
        self.states: list[tuple[float, str, str]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._looking: asyncio.Task[None] | None = None
        self.replica = self.run(self._make(config, runtime))

    def run(self, work: Coroutine[Any, Any, T], seconds: float = 120) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def start(self) -> None:
        self.run(self.replica.start())

    def until(self, condition: Callable[[], bool], seconds: float) -> float:
        """Wait; return how long it took."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise TimeoutError(f"not within {seconds} s: {self.states[-5:]}")
            time.sleep(0.02)
        return time.monotonic() - began

    def until_state(self, state: str, seconds: float) -> float:
        return self.until(lambda: self.replica.state == state, seconds)

    def processes(self) -> list[psutil.Process]:
        """All that runs under the guardian; nothing, where none is there yet."""
        child = self.replica._child
        if child is None or not child.pid:
            return []
        return psutil.Process(child.pid).children(recursive=True)

    def named(self, words: str) -> psutil.Process:
        (found,) = (p for p in self.processes() if words in " ".join(p.cmdline()))
        return found

    def ask(self, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
        """Send one request over the engine's own socket."""
        connection = http.client.HTTPConnection("engine", timeout=600)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.replica.socket))
        try:
            method = "GET" if body is None else "POST"
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read() or b"null")
        finally:
            connection.close()

    def complete(self, prompt: str, tokens: int) -> str:
        """Return what the engine makes of ``prompt``, greedily."""
        asked = {"model": self.replica._config.name, "prompt": prompt, "temperature": 0}
        status, said = self.ask("/v1/completions", {**asked, "max_tokens": tokens})
        assert status == 200, said
        text: str = said["choices"][0]["text"]
        return text

    def close(self) -> None:
        self.run(self.replica.stop(5))
        if self._looking is not None:
            self._looking.cancel()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _make(self, config: ModelConfig, runtime: Path) -> HostReplica:
        replica = HostReplica(f"{config.name}/1/0@1", config, runtime, self._changed)
        self._looking = asyncio.create_task(self._look())
        return replica

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            self.replica.look(time.monotonic())

    def _changed(self) -> None:
        told = self.replica.told()
        self.states.append((time.monotonic(), told["state"], told["why"]))
