"""The HTTP processes: started, told what to serve, restarted without any engine noticing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from modelops.errors import EngineError, ModelopsError
from modelops_servers.dataplane.failure import told
from modelops_servers.supervisor.backoff import Backoff
from modelops_servers.supervisor.child import Child, Message

_START_SECONDS = 60.0

OnEvent = Callable[[int, Message], None]
OnAsk = Callable[[Message], Awaitable[dict[str, Any]]]


class Front:
    """Keeps one front running."""

    def __init__(
        self, index: int, first: Message, fds: list[int], on_event: OnEvent, on_ask: OnAsk
    ) -> None:
        self.index = index
        self.serving = False
        self.ready: dict[str, bool] = {}
        """Which versions it can send requests to."""
        self.failure: ModelopsError | None = None
        self.topology: list[dict[str, Any]] = []
        self._first = first
        self._fds = fds
        self._on_event = on_event
        self._on_ask = on_ask
        self._backoff = Backoff()
        self._child: Child | None = None
        self._began = time.monotonic()
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._questions = 0

    async def start(self) -> None:
        """Start the process; where the machine has no room for it, try again later."""
        self.serving = False
        self.ready = {}
        self._began = time.monotonic()
        child = self._child = Child(
            f"front-{self.index}", "modelops_servers.front", self._on_message, self._on_exit
        )
        try:
            await child.start({**self._first, "topology": self.topology}, self._fds)
        except OSError as error:
            self._again(f"front {self.index} cannot be started: {error}")

    def tell(self, topology: list[dict[str, Any]]) -> None:
        """Say what is to be served now."""
        self.topology = topology
        if self._child is not None:
            self._child.send({"op": "topology", "models": topology})

    async def ask(self, message: Message, seconds: float) -> Message | None:
        """Ask it something; None where it does not answer in time."""
        if self._child is None or not self.serving:
            return None
        self._questions += 1
        number = self._questions
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._child.send({**message, "id": number})
        try:
            async with asyncio.timeout(seconds):
                said: Message = await answer
                return said
        except TimeoutError:
            return None
        finally:
            del self._answers[number]

    async def stop(self, drain_seconds: float) -> None:
        """Let it finish what is in flight, up to ``drain_seconds``; then kill it."""
        self._stopping = True
        child = self._child
        if child is None:
            return
        if not self.serving:  # nothing is in flight, and importing takes longer than to wait for
            child.kill()
        child.send({"op": "drain", "seconds": drain_seconds})
        try:
            # It says goodbye to its connections after the drain itself.
            async with asyncio.timeout(drain_seconds + 3):
                await child.exited.wait()
        except TimeoutError:
            child.kill()
            await child.exited.wait()

    def look(self, now: float) -> None:
        """Kill one that does not come up."""
        child = self._child
        if child is None or child.exited.is_set() or self.serving:
            return
        if now - self._began > _START_SECONDS:
            child.kill()

    def _on_message(self, child: Child, message: Message) -> None:
        if child is not self._child:
            return
        match message["event"]:
            case "serving":
                self._backoff.well()
                self.serving = True
                self.failure = None
            case "routing":
                self.ready = message["ready"]
            case "answer":
                waiting = self._answers.get(message["id"])
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case "ask":
                task = asyncio.create_task(self._answer(child, message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                return
        self._on_event(self.index, message)

    async def _answer(self, child: Child, message: Message) -> None:
        try:
            result = await self._on_ask(message)
        except Exception as error:  # noqa: BLE001 - whatever it is, the operator is answered
            known = error if isinstance(error, ModelopsError) else EngineError(repr(error))
            child.send({"op": "reply", "id": message["id"], "error": told(known)})
        else:
            child.send({"op": "reply", "id": message["id"], "result": result})

    async def _on_exit(self, child: Child, code: int) -> None:
        if self._stopping or child is not self._child:
            return
        self.serving = False
        self.ready = {}
        lines = "\n".join(list(child.log)[-20:])
        self._again(f"front {self.index} ended with exit code {code}: {lines}")

    def _again(self, why: str) -> None:
        self.failure = EngineError(why)
        self._on_event(self.index, {"event": "ended"})
        task = asyncio.create_task(self._restart(self._backoff.next()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        if not self._stopping:
            await self.start()
