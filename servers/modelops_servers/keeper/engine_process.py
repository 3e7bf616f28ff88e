"""An engine's process: in this one's session, so that whatever ends that ends it; its log read."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from modelops_servers.keeper.vllm_command import Launch

_CHUNK = 2**16
_LINE_LIMIT = 2**16


class EngineProcess:
    """``launch`` as a child; ``on_line`` gets every line of its stdout and stderr.

    It stays in this process's session and group: whoever ends that, the guardian or the
    supervisor, ends the engine with all that it started.
    """

    def __init__(self, launch: Launch, folder: Path, on_line: Callable[[str], None]) -> None:
        self._launch = launch
        self._folder = folder
        self._on_line = on_line
        self._process: asyncio.subprocess.Process | None = None
        self._log_pipe: asyncio.ReadTransport | None = None
        self._reading: asyncio.Task[None] | None = None
        self._exit: asyncio.Task[int] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that was started; 0 before."""
        return self._process.pid if self._process is not None else 0

    @property
    def exited(self) -> bool:
        """Whether that process has ended."""
        return self._exit is not None and self._exit.done()

    async def start(self) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        stream = asyncio.StreamReader(limit=_LINE_LIMIT)
        log, output = os.pipe()
        with contextlib.closing(os.fdopen(output, "wb", 0)):
            # Not by PIPE: asyncio's wait() would then also wait for whoever else holds that pipe.
            self._log_pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(log, "rb", 0)
            )
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._launch.command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=dict(self._launch.environment),
                    cwd=self._folder,
                )
            except BaseException:
                self._log_pipe.close()
                raise
        self._reading = asyncio.create_task(self._read(stream))
        self._exit = asyncio.create_task(self._process.wait())

    async def wait(self) -> int:
        """Wait for its end; return its exit code, negative where a signal ended it.

        Its last lines have been read by then.
        """
        assert self._exit is not None  # noqa: S101 - started
        assert self._reading is not None  # noqa: S101
        code = await asyncio.shield(self._exit)
        # What it left behind may hold the pipe.
        await asyncio.wait({self._reading}, timeout=0.5)
        return code

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self._process is not None and not self.exited:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Stop reading."""
        if self._reading is not None:
            self._reading.cancel()
        if self._log_pipe is not None:
            self._log_pipe.close()

    async def _read(self, stream: asyncio.StreamReader) -> None:
        """Cut at line ends, and at the returns by which a progress bar draws over itself."""
        rest = b""
        while chunk := await stream.read(_CHUNK):
            *lines, rest = (rest + chunk).replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                self._on_line(line.decode("utf-8", "replace"))
            if len(rest) > _LINE_LIMIT:
                self._on_line(rest.decode("utf-8", "replace"))
                rest = b""
        if rest:
            self._on_line(rest.decode("utf-8", "replace"))
