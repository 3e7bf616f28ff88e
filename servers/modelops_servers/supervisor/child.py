"""One child process: started under a guardian, spoken with in JSON lines, its log kept."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import orjson

_log = logging.getLogger(__name__)

_GUARDIAN = Path(__file__).with_name("guardian.py")
_LOG_LINES = 60
_LINE_LIMIT = 64 * 2**20
# A child's log line beyond this is cut: it is only shown to people.
_LOG_LINE_LIMIT = 2**16

Message = dict[str, Any]
OnMessage = Callable[["Child", Message], None]
OnExit = Callable[["Child", int], Awaitable[None]]


class Child:
    """``python -P -m MODULE CONTROL_FD`` and all that it starts.

    ``on_message`` is called for every message of the child, ``on_exit`` once, with its exit code
    (128 + the signal's number where a signal ended it). ``on_log`` gets each line of its log;
    without one they go to stderr.
    """

    def __init__(
        self,
        name: str,
        module: str,
        on_message: OnMessage,
        on_exit: OnExit,
        on_log: Callable[[str], object] | None = None,
    ) -> None:
        self.name = name
        self._module = module
        self._on_message = on_message
        self._on_exit = on_exit
        self._on_log = on_log or _to_stderr
        self.log: deque[str] = deque(maxlen=_LOG_LINES)
        self._life = -1
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._early: list[Message] = []
        self._log_pipe: asyncio.ReadTransport | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.exited = asyncio.Event()

    @property
    def pid(self) -> int:
        """The guardian's process id, which is also the id of the child's session."""
        return self._process.pid if self._process else 0

    @property
    def is_there(self) -> bool:
        """Whether nothing is known of its end yet, which ``on_exit`` tells a moment later."""
        started = self._process is not None and self._process.returncode is None
        return started and bool(self._tasks) and not self._tasks[0].done()

    def hand_over(self, name: str, on_message: OnMessage, on_exit: OnExit) -> None:
        """Let somebody else hear of it from now on."""
        self.name = name
        self._on_message = on_message
        self._on_exit = on_exit

    async def start(self, first: Message | None, pass_fds: Sequence[int] = ()) -> None:
        """Start it and send ``first``, if any; the descriptors in ``pass_fds`` keep their numbers.

        Raises:
            OSError: this machine has no room for one more process.
        """
        ours: socket.socket | None = None
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                log = await self._spawn(theirs.fileno(), pass_fds)
            reader, self._writer = await asyncio.open_connection(sock=ours, limit=_LINE_LIMIT)
        except BaseException:
            # Also where this is cancelled: whoever then waits for its end must not wait for ever.
            if ours is not None:
                ours.close()
            self.kill()
            if self._process is not None:
                await self._process.wait()
            self._close_log()
            self.exited.set()
            raise
        for message in (*([] if first is None else [first]), *self._early):
            self.send(message)
        self._tasks = [
            asyncio.create_task(self._read(reader)),
            asyncio.create_task(self._read_log(log)),
            asyncio.create_task(self._wait()),
        ]

    async def _spawn(self, control: int, pass_fds: Sequence[int]) -> asyncio.StreamReader:
        """Start guardian and child; return what they log."""
        stream = asyncio.StreamReader(limit=_LOG_LINE_LIMIT)
        with contextlib.ExitStack() as stack:
            reading, self._life = os.pipe()
            stack.callback(os.close, reading)
            log, stderr = os.pipe()
            stack.callback(os.close, stderr)
            command = [sys.executable, "-I", "-S", str(_GUARDIAN), str(reading), "--"]
            # -P: a module of the working folder must not stand before the installed ones.
            command += [sys.executable, "-P", "-m", self._module, str(control)]
            # Not by PIPE: asyncio's wait() would then also wait for whoever else holds that pipe.
            self._log_pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(stream), os.fdopen(log, "rb", 0)
            )
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(reading, control, *pass_fds),
                start_new_session=True,
            )
        return stream

    def send(self, message: Message) -> None:
        """Send a message, after ``first``; one to a child that is gone is dropped."""
        if self._writer is None:
            self._early.append(message)
        elif not self._writer.is_closing():
            self._writer.write(orjson.dumps(message) + b"\n")

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self._life >= 0:
            with contextlib.suppress(OSError):
                os.write(self._life, b"T")

    def kill(self) -> None:
        """Kill it and all its descendants; ``on_exit`` follows."""
        if self._life >= 0:
            os.close(self._life)
            self._life = -1
            # A guardian that somebody stopped, with all of its session, could not act on it.
            if self._process is not None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGCONT)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                self._on_message(self, orjson.loads(line))
        except ConnectionError:
            return
        except Exception:  # noqa: BLE001 - whatever it is, it is logged and a new start made
            # Deaf to a child the supervisor would be wrong about it: a new start is better.
            _log.exception("cannot follow what %s says", self.name)
            self.kill()

    def _close_log(self) -> None:
        if self._log_pipe is not None:
            self._log_pipe.close()

    async def _read_log(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                line = await stream.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                line = end.partial
                if not line:
                    return
            except asyncio.LimitOverrunError as over:
                line = await stream.read(over.consumed) + b"\n"
            text = line.decode("utf-8", "replace")
            self.log.append(text.rstrip())
            self._on_log(text)

    async def _wait(self) -> None:
        assert self._process is not None  # noqa: S101 - started
        code = await self._process.wait()
        # Where the guardian itself was killed, its session has no one else to end it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.kill()
        if self._writer is not None:
            self._writer.close()
        # The last lines say why it ended; a descendant that keeps the pipe must not hold us up.
        await asyncio.wait(self._tasks[:2], timeout=1)
        for task in self._tasks[:2]:
            task.cancel()
        self._close_log()
        self.exited.set()
        await self._on_exit(self, code if code >= 0 else 128 - code)


def _to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text)
        sys.stderr.flush()
