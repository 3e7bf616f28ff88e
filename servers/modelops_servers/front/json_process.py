"""Large JSON, read and written in a process of its own.

Whether on the event loop or in a thread, the JSON of a few megabytes keeps the interpreter from
everything else for tenths of a second. Its bytes go to that process and back by a thread, in
system calls that let the loop run.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy.typing as npt

from modelops.errors import EngineError, OverloadedError
from modelops_servers.dataplane.packed_strings import PackedStrings
from modelops_servers.dataplane.strings import LENGTH_BYTES
from modelops_servers.front import out_of_band
from modelops_servers.front.out_of_band import Failed

T = TypeVar("T")

DECODED_ON_LOOP_BYTES = 64 * 1024
"""JSON up to this size is decoded where it is: the worst of it takes 5 ms."""
ENCODED_ON_LOOP_VALUES = 64 * 1024
"""Up to this many values, as ``json_values`` counts them, are encoded where they are."""
STRINGS_ON_LOOP = DECODED_ON_LOOP_BYTES // LENGTH_BYTES
"""Up to this many strings of binary data are walked over or joined where they are."""

_WORKER = "modelops_servers.front.json_worker"
_STOPPING = "the server is stopping"
_MOST_WAITING = 64
# The largest JSON of the default limits takes a few seconds in the worst case.
_JOB_SECONDS = 60.0
_STRING_VALUES = 4  # a string takes as long as four numbers …
_CHARACTERS_A_VALUE = 64  # … and one more for every so many characters


def json_values(arrays: Mapping[str, npt.NDArray[Any]]) -> int:
    """Return how much work ``arrays`` are as JSON, in numbers of the same cost."""
    count = 0
    for array in arrays.values():
        if array.dtype != object:
            count += array.size
            continue
        count += array.size * _STRING_VALUES
        if isinstance(array, PackedStrings):
            count += array.packed.nbytes // _CHARACTERS_A_VALUE
        elif count <= ENCODED_ON_LOOP_VALUES:
            count += sum(map(len, array.ravel())) // _CHARACTERS_A_VALUE
    return count


class JsonProcess:
    """One worker process, started on first need, and again when it died.

    All methods are called on one event loop.
    """

    def __init__(self, job_seconds: float = _JOB_SECONDS) -> None:
        """A job that takes longer than ``job_seconds`` fails, and its process is ended."""
        self._job_seconds = job_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="modelops-json")
        self._waiting = 0
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id, None before it is needed."""
        return None if self._process is None else self._process.pid

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """Return ``function(*arguments)`` as computed in the worker.

        ``function`` is one that a module has by its name. What it raises is raised here. Arrays
        travel well; large ``bytes`` in the result are ``memoryview``, and its tensors of strings
        are ``PackedStrings``.

        Cancelling leaves the worker to finish; its answer is dropped.

        Raises:
            OverloadedError: too many calls wait already.
            EngineError: the worker died, or took too long; the next call starts another.
        """
        if self._closed:
            raise EngineError(_STOPPING)
        if self._waiting >= _MOST_WAITING:
            raise OverloadedError(f"{self._waiting} requests already wait for their JSON")
        job = [(function, arguments)]
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            result: T = await loop.run_in_executor(self._thread, self._call, job)
        finally:
            self._waiting -= 1
            # A job that is cancelled while it waits must not keep what it would have sent.
            job.clear()
        return result

    async def close(self) -> None:
        """End the worker; calls that still wait fail."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        await asyncio.to_thread(self._thread.shutdown)
        self._stop()

    def _call(self, job: list[tuple[Callable[..., Any], tuple[Any, ...]]]) -> Any:
        if not job:
            return None
        if self._closed:
            raise EngineError(_STOPPING)
        sock = self._running()
        try:
            out_of_band.send(sock, job.pop(), open_strings=True)
            reply = out_of_band.receive(sock)
        except TimeoutError as error:
            self._stop()
            raise EngineError(
                f"JSON took longer than {self._job_seconds:g} s to read or write"
            ) from error
        except (EOFError, ConnectionError) as error:
            how = self._stop(patience=1)
            raise EngineError(
                f"the process that reads and writes large JSON ended ({how})",
                hint="send large tensors as binary data",
            ) from error
        if isinstance(reply, Failed):
            raise reply.error()
        return reply

    def _running(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self._stop()
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _WORKER, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                )
            except OSError as error:
                ours.close()
                raise EngineError(f"no process for large JSON could be started: {error}") from error
        ours.settimeout(self._job_seconds)
        self._socket = ours
        return ours

    def _stop(self, patience: float = 0) -> str:
        """End the process, if there is one, and say how it ended."""
        how = "it was not there"
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(patience)
            self._process.kill()
            code = self._process.wait()
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
        if self._socket is not None:
            self._socket.close()
        self._process = self._socket = None
        return how
