"""One engine under its keeper and a guardian, for as long as it is measured."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from modelops.config import ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops.progress import Progress
from modelops_servers.dataplane.failure import heard
from modelops_servers.keeper import leftovers
from modelops_servers.supervisor.child import Child, Message

_STOP_SECONDS = 15.0
_TELL_SECONDS = 3.0
_MODULE = "modelops_servers.keeper"

T = TypeVar("T")


class Kept:
    """Started on entry and ended on exit, however that comes; ``log`` gets what it says.

    It is not restarted: figures of an engine that failed in between are none.
    """

    def __init__(
        self, name: str, config: ModelConfig, socket: Path, log: IO[str], progress: Progress
    ) -> None:
        self.describe: dict[str, Any] = {}
        self.socket = socket
        self._name = name
        self._config = config
        self._log = log
        self._progress = progress
        self._doing = ""
        self._said: ModelopsError | None = None
        self._ready = asyncio.Event()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._child = Child(name, _MODULE, self._on_message, self._on_exit, log.write)

    async def __aenter__(self) -> Self:
        """Start it, and wait until it is ready.

        Raises:
            ModelopsError: it does not get so.
        """
        first = {"model": self._config.model_dump(mode="json"), "socket": str(self.socket)}
        try:
            await self._child.start(first)
        except OSError as error:
            raise EngineError(f"no keeper can be started: {error}") from error
        try:
            await self.during(self._until_ready())
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._child.send({"op": "stop", "seconds": 0})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._child.exited.wait()
        await self._end()

    async def during(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` does, for as long as the engine is well.

        Raises:
            ModelopsError: it ended, or hangs.
        """
        task = asyncio.create_task(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self._ended}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and isinstance(task.exception(), ModelopsError):
                # An engine's end is felt by whoever asks it before the keeper tells why.
                await asyncio.wait({self._ended}, timeout=_TELL_SECONDS)
            if self._ended.done():
                self._ended.result()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _until_ready(self) -> None:
        try:
            async with asyncio.timeout(self._config.load_seconds):
                await self._ready.wait()
        except TimeoutError:
            raise EngineError(f"it was not ready after {self._config.load_seconds:g} s") from None

    async def _end(self) -> None:
        self._child.kill()
        await self._child.exited.wait()
        self.socket.unlink(missing_ok=True)
        leftovers.remove(self.socket.with_suffix(leftovers.SUFFIX))
        if self._ended.done():
            self._ended.exception()

    def _on_message(self, _child: Child, message: Message) -> None:
        if message["event"] == "failed":
            self._said = heard(message["error"])
            return
        if message["event"] == "ready":
            self.describe = message["describe"]
            self._ready.set()
        if message["state"] == "loading" and message["why"] != self._doing:
            self._doing = message["why"]
            self._progress(f"{self._name}: {self._doing}")
        elif message["state"] == "stuck":
            self._fail(EngineError(f"the engine hangs: {message['why']}"))

    async def _on_exit(self, child: Child, code: int) -> None:
        tail = "\n".join(list(child.log)[-20:])
        self._fail(self._said or EngineError(f"the keeper ended with exit code {code}; {tail}"))

    def _fail(self, error: ModelopsError) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
