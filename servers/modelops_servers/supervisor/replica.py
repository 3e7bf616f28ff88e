"""One engine host, or keeper, as the supervisor sees it: started, watched, restarted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from modelops.config import ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops.protocols import State
from modelops_servers.dataplane.failure import heard
from modelops_servers.keeper import leftovers
from modelops_servers.supervisor.backoff import Backoff
from modelops_servers.supervisor.child import Child, Message

SILENT_SECONDS = 3.0
"""A host beats twice a second; one that has been silent for this long is stuck, not busy."""

STUCK_SECONDS = 30.0
"""A host that has been stuck for this long is killed and restarted."""

_STOP_SECONDS = 5.0
# A server of its own also takes its time to end, once it has nothing more to do.
_ENDING_SECONDS = 10.0

_SHOWN = 300  # characters of an earlier failure

_log = logging.getLogger(__name__)


class HostReplica:
    """Keeps one host running; ``on_change`` is called whenever what fronts must know changed.

    The host is a process of ours with the engine in it, or the keeper of an engine that is a
    server of its own: they say the same things.
    """

    def __init__(
        self,
        name: str,
        config: ModelConfig,
        runtime: Path,
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.describe: dict[str, Any] = {}
        self.restarts = 0
        self.failure: ModelopsError | None = None
        """Why the last start failed."""
        self._config = config
        self._runtime = runtime
        self._on_change = on_change
        self._backoff = Backoff()
        self._generation = 0
        self._child: Child | None = None
        self._said: ModelopsError | None = None
        self._heard = time.monotonic()
        self._stuck_since: float | None = None
        self._started_at = time.monotonic()
        self._last_progress: float | None = None
        self._stopping = False
        self._restarting: asyncio.Task[None] | None = None
        self._kill_why = ""
        server = config.is_server
        self._module = "modelops_servers.keeper" if server else "modelops_servers.host"
        self._doing = "starting the engine" if server else _OPENING
        self._ending_seconds = _ENDING_SECONDS if server else 0.0
        self._set("loading", "starting the engine host", _LOADING)

    @property
    def id(self) -> str:
        """Its name and which start of it this is: a new start is a new connection."""
        return f"{self.name}.{self._generation}"

    @property
    def why(self) -> str:
        """Why it is as it is; while it loads, how far it has come."""
        return self._why

    @property
    def socket(self) -> Path:
        """Where it listens; short, as such a path must be, and no other host's."""
        return self._runtime / f"{self.name.rpartition('/')[2]}.{self._generation}.sock"

    async def start(self) -> None:
        """Start the process; what becomes of it is told by ``on_change``."""
        self._generation += 1
        self._said = None
        self._stuck_since = None
        self._kill_why = ""
        self._heard = self._started_at = time.monotonic()
        self._set_loading(self._doing)
        self._child = Child(self.id, self._module, self._on_message, self._on_exit)
        first = {"model": self._config.model_dump(mode="json"), "socket": str(self.socket)}
        try:
            await self._child.start(first)
        except OSError as error:
            self.failure = EngineError(f"no engine host can be started for {self.name}: {error}")
            self._again("it cannot be started", str(error))

    async def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Let it finish what it has read, up to ``seconds``; then kill it."""
        self._stopping = True
        if self._restarting is not None:
            self._restarting.cancel()
        child = self._child
        if child is not None:
            if self.state != "ready":  # it has read nothing, or would never finish it
                child.kill()
            child.send({"op": "stop", "seconds": seconds})
            try:
                async with asyncio.timeout(seconds + self._ending_seconds):
                    await child.exited.wait()
            except TimeoutError:
                child.kill()
                await child.exited.wait()
        self._clear_up()
        self._set("stopped", "stopped", "")

    def look(self, now: float) -> None:
        """Judge its silence and its time to load; called a few times a second."""
        child = self._child
        if child is None or child.exited.is_set() or self._stopping:
            return
        if self.state == "loading" and now - self._started_at > self._config.load_seconds:
            self._kill(f"it was not ready {self._config.load_seconds:g} s after its start")
        elif self.state == "ready" and now - self._heard > SILENT_SECONDS:
            self._set_stuck(f"no sign of life for {now - self._heard:.1f} s", now)
        if self.state == "stuck" and self._stuck_since is not None:
            left = STUCK_SECONDS - (now - self._stuck_since)
            if left <= 0:
                self._kill(f"it was stuck for {STUCK_SECONDS:g} s")

    def told(self) -> dict[str, Any]:
        """Return its part of the topology."""
        return {
            "id": self.id,
            "socket": str(self.socket),
            "state": self.state,
            "why": self._why,
            "since": self._since,
            "next": self._next,
            "restarts": self.restarts,
            "last_progress": self._last_progress,
            "describe": self.describe,
        }

    def _clear_up(self) -> None:
        """Remove what one that was killed leaves; its processes are gone."""
        self.socket.unlink(missing_ok=True)
        leftovers.remove(self.socket.with_suffix(leftovers.SUFFIX))

    def _set(self, state: State, why: str, next: str) -> None:
        self.state: State = state
        self._why = why
        self._next = next
        self._since = time.time()

    def _set_loading(self, doing: str) -> None:
        self._set("loading", self._loading(doing), _LOADING if self.failure is None else _TRYING)

    def _loading(self, doing: str) -> str:
        """Say it so that a try that is under way does not hide why the last one failed."""
        if self.failure is None:
            return doing
        return f"{doing}; its last start ended so: {self.failure.message.splitlines()[0][:_SHOWN]}"

    def _set_stuck(self, why: str, now: float) -> None:
        self._stuck_since = now
        self._set(
            "stuck",
            why,
            f"new requests get 503; it is killed and restarted if it stays so for "
            f"{STUCK_SECONDS:g} s",
        )
        _log.warning("%s is stuck: %s", self.name, why)
        self._on_change()

    def _kill(self, why: str) -> None:
        assert self._child is not None  # noqa: S101 - only what runs is looked at
        self._kill_why = why
        self._child.kill()

    def _on_message(self, child: Child, message: Message) -> None:
        if child is not self._child:
            return
        self._heard = time.monotonic()
        event = message["event"]
        if event == "failed":
            self._said = heard(message["error"])
            return
        self._last_progress = message["last_progress"]
        if event == "ready":
            self.describe = message["describe"]
            self._backoff.well()
        state = message["state"]
        if event == "beat" and state == "ready" and not self.describe:
            return  # "ready" itself, which says more, is on its way
        if state == "stuck":
            if self.state != "stuck":
                self._set_stuck(message["why"], self._heard)
        elif state != self.state and not self._stopping:
            self._stuck_since = None
            if state == "loading":
                self._set_loading(message["why"])
            else:
                self._set(state, message["why"], message.get("next") or _NEXT.get(state, _LOADING))
            if state == "ready":
                self.failure = None
            self._on_change()
        elif state == "loading" and self._loading(message["why"]) != self._why:
            # How far it has come.
            self._why = self._loading(message["why"])
            self._on_change()

    async def _on_exit(self, child: Child, code: int) -> None:
        self._clear_up()
        if self._stopping or child is not self._child:
            return
        was_ready = bool(self.describe) and self.state != "loading"
        why = self._kill_why or _ended(code)
        self.describe = {}
        self.failure = self._said or EngineError(
            f"the engine host of {self.name} ended: {why}" + _tail(child)
        )
        if self._said is not None:
            why = self._said.message
        self._again("it ended" if was_ready else "it could not be loaded", why)

    def _again(self, what: str, why: str) -> None:
        delay = self._backoff.next()
        next = f"it is restarted {'at once' if not delay else f'in {delay:g} s'}"
        _log.warning("%s: %s: %s; %s", self.name, what, why, next)
        self._set("failed", f"{what}: {why}", next)
        self._on_change()
        self._restarting = asyncio.create_task(self._restart(delay))

    async def _restart(self, delay: float) -> None:
        await asyncio.sleep(delay)
        if not self._stopping:
            self.restarts += 1
            await self.start()
            self._on_change()


_OPENING = "opening the artifact and starting the engine"
_LOADING = "it turns ready by itself once it is loaded and warmed up"
_TRYING = "it is tried again, each time a little later, until it loads"
_NEXT = {"ready": "nothing to do"}


def _ended(code: int) -> str:
    if code > 128:
        return f"killed by signal {code - 128}"
    # 0 unasked is a crash too.
    return f"exit code {code}"


def _tail(child: Child) -> str:
    lines = [line for line in child.log if line][-20:]
    return "; the end of its log:\n" + "\n".join(lines) if lines else "; it logged nothing"
