"""A mock in a process of its own, for tests, calibration and benchmarks."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import orjson

from modelops_loadtests.mock.script import Script

_STOP_SECONDS = 5


class MockServer:
    """Serves ``script`` until it is closed; a context manager.

    ``url`` is its base URL, ``pid`` its process. It starts in about a tenth of a second.

    Raises:
        RuntimeError: it did not start.
    """

    def __init__(
        self, script: Script | None = None, *, models: Sequence[str] = ("mock",), key: str = ""
    ) -> None:
        command = [sys.executable, "-P", "-m", "modelops_loadtests.mock"]
        for model in models:
            command += ["--model", model]
        command += ["--key", key] if key else []
        # The last line of defence: a parent that dies closes the pipe, and so ends the mock.
        self._process = subprocess.Popen(
            [*command, *_options(script or Script())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the terminal's Ctrl-C is the parent's to handle
        )
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline()
        if not line:
            self.close()
            raise RuntimeError(f"the mock did not start (exit {self._process.returncode})")
        self.port: int = orjson.loads(line)["port"]
        self.url = f"http://127.0.0.1:{self.port}"
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stamps(self) -> dict[str, Any]:
        """Return what GET /stamps tells: ``late_ms`` and ``requests``, as in ``mock.stamps``."""
        told: dict[str, Any] = orjson.loads(self._ask("GET", "/stamps"))
        return told

    def arrivals(self) -> list[tuple[float, float | None]]:
        """Return when each request came and when its reply was over."""
        return [(came, over) for came, over in orjson.loads(self._ask("GET", "/arrivals"))]

    def metrics(self) -> str:
        """Return the text of GET /metrics."""
        return self._ask("GET", "/metrics").decode()

    def forget(self) -> None:
        """Drop the stamps so far."""
        self._ask("DELETE", "/stamps")

    def close(self) -> None:
        """End it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _ask(self, method: str, path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path)
            return connection.getresponse().read()
        finally:
            connection.close()


def _options(script: Script) -> list[str]:
    """Return a script as the command's options; what is as it comes is left out."""
    options = []
    for each in fields(Script):
        value = getattr(script, each.name)
        name = each.name.replace("_", "-")
        if value == each.default:
            continue
        if isinstance(value, bool):
            options.append(f"--{'' if value else 'no-'}{name}")
        else:
            options += [f"--{name}", str(value)]
    return options
