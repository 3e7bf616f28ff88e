"""The HTTP processes: started, told what to serve, restarted without any engine noticing."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from modelops.errors import EngineError, ModelopsError
from modelops.protocols import State
from modelops_servers.dataplane.failure import told
from modelops_servers.supervisor.backoff import Backoff
from modelops_servers.supervisor.child import Child, Message
from modelops_servers.supervisor.silence import Silence
from modelops_servers.supervisor.spare import DEAD_SECONDS, FRONT, IMPORT_SECONDS, Spare

_log = logging.getLogger(__name__)

_STUCK_SECONDS = 3.0
# Nothing answers while a front is away: one that had served for this long is restarted at once.
_FORGIVEN_SECONDS = 5.0
_HOPELESS = 4  # ends in a row without having served

OnEvent = Callable[[int, Message], None]
OnAsk = Callable[[Message], Awaitable[dict[str, Any]]]


class Front:
    """Keeps one front running."""

    def __init__(
        self,
        index: int,
        first: Message,
        fds: list[int],
        spare: Spare,
        on_event: OnEvent,
        on_ask: OnAsk,
    ) -> None:
        self.index = index
        self.restarts = 0
        self.ready: dict[str, bool] = {}
        """Which versions it can send requests to."""
        self.failure: ModelopsError | None = None
        self.topology: list[dict[str, Any]] = []
        self._first = first
        self._fds = fds
        self._spare = spare
        self._on_event = on_event
        self._on_ask = on_ask
        self._backoff = Backoff(_FORGIVEN_SECONDS)
        self._child: Child | None = None
        self._silence = Silence()
        self._start_of = Silence()
        self._start_seconds = IMPORT_SECONDS
        self._kill_why = ""
        self._stopping = False
        self._has_served = False
        self._failed_in_a_row = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._questions = 0
        self._set("loading", "starting", _LOADING)

    @property
    def serving(self) -> bool:
        """Whether it takes requests, or did until it fell silent."""
        return self.state in ("ready", "stuck")

    @property
    def hopeless(self) -> ModelopsError | None:
        """Why waiting for it is in vain: it never served, or does not come back; else None."""
        if self._has_served and self._failed_in_a_row < _HOPELESS:
            return None
        return self.failure

    async def start(self) -> None:
        """Start the process, or take the spare one; where there is no room for it, try later."""
        self.ready = {}
        self._kill_why = ""
        self._silence.heard()
        self._start_of.heard()
        self._start_seconds = IMPORT_SECONDS
        self._set("loading", "starting", _LOADING)
        self._on_event(self.index, {"event": "starting"})
        name = f"front-{self.index}"
        first = {**self._first, "topology": self.topology}
        spare = self._spare.take(name, self._on_message, self._on_exit)
        if spare is not None:
            if self._spare.imported:
                self._start_seconds = DEAD_SECONDS
            self._child = spare
            spare.send(first)
            return
        child = self._child = Child(name, FRONT, self._on_message, self._on_exit)
        try:
            await child.start(first, self._fds)
        except OSError as error:
            self._again(f"cannot be started: {error}")

    def tell(self, topology: list[dict[str, Any]]) -> None:
        """Say what is to be served now."""
        self.topology = topology
        self.say({"op": "topology", "models": topology})

    def say(self, message: Message) -> None:
        """Send it a message, where it is there."""
        if self._child is not None:
            self._child.send(message)

    async def ask(self, message: Message, seconds: float) -> Message | None:
        """Ask it something; None where it does not answer in time."""
        if self._child is None or self.state != "ready":
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

    def look(self, now: float, patience: float = 0.0) -> None:
        """Kill one that does not come up, or is silent; ``now`` is on the clock of watching.

        ``patience``: seconds for which an engine that starts inside it may keep it from speaking.
        """
        child = self._child
        if child is None or child.exited.is_set() or self.state == "failed" or self._stopping:
            return
        silent = self._silence.seconds(now)
        limit = max(DEAD_SECONDS, patience)
        if not self.serving:
            if self._start_of.seconds(now) > max(self._start_seconds, patience):
                self._kill("it did not come up")
        elif silent > limit:
            self._kill(f"no sign of life for {limit:g} s")
        elif silent > _STUCK_SECONDS and self.state == "ready":
            self._set(
                "stuck",
                f"no sign of life for {silent:.1f} s",
                f"it is killed and restarted if it stays so for {limit:g} s",
            )
            _log.warning("front %d is stuck: %s", self.index, self._why)
            self._on_event(self.index, {"event": "stuck"})

    def told(self) -> dict[str, Any]:
        """Return how it is, for the fronts that can say so."""
        return {
            "index": self.index,
            "state": self.state,
            "why": self._why,
            "since": self._since,
            "next": self._next,
            "restarts": self.restarts,
        }

    def _set(self, state: State, why: str, next: str) -> None:
        self.state: State = state
        self._why = why
        self._next = next
        self._since = time.time()

    def _kill(self, why: str) -> None:
        assert self._child is not None  # noqa: S101 - only what runs is looked at
        self._kill_why = why
        self._child.kill()

    def _on_message(self, child: Child, message: Message) -> None:
        if child is not self._child:
            return
        self._silence.heard()
        if self.state == "stuck":
            self._set("ready", "serving", "nothing to do")
            self._on_event(self.index, {"event": "healed"})
        match message["event"]:
            case "beat":
                return
            case "serving":
                self._backoff.well()
                self._set("ready", "serving", "nothing to do")
                self.failure = None
                self._has_served = True
                self._failed_in_a_row = 0
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
        self.ready = {}
        why = f"ended with exit code {code}"
        if self._kill_why:
            why = f"was killed: {self._kill_why}"
        self._again(why, ": " + "\n".join(list(child.log)[-20:]))

    def _again(self, why: str, log: str = "") -> None:
        self.failure = EngineError(f"front {self.index} {why}{log}")
        self._failed_in_a_row += 1
        delay = self._backoff.next()
        self._set("failed", f"it {why}", f"it is restarted {_after(delay)}")
        self._on_event(self.index, {"event": "ended", "why": why})
        task = asyncio.create_task(self._restart(delay))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _restart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        if not self._stopping:
            self.restarts += 1
            await self.start()


_LOADING = "it serves by itself once it has started"


def _after(delay: float) -> str:
    return f"in {delay:g} s" if delay else "at once"
