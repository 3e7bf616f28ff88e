"""One keeper from start to end: starts its engine, watches it, reports; the engine ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import Any, Protocol

import orjson

from modelops.config import ELSEWHERE, ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops_servers import logs
from modelops_servers.dataplane.failure import told
from modelops_servers.keeper.standing import Standing

HEARTBEAT_SECONDS = 0.5
_LINE_LIMIT = 2**20
_DRAIN_SECONDS = 30.0


class Keeper(Protocol):
    """One engine that is a server of its own."""

    standing: Standing

    async def start(self) -> dict[str, Any]:
        """Return what is in use once it is ready; raise ModelopsError where it does not get so."""

    async def watch(self) -> None:
        """Watch it for as long as it runs; raise ModelopsError when it ends."""

    async def stop(self, seconds: float | None) -> None:
        """End it, after what it still has to do, up to ``seconds``."""

    async def close(self) -> None:
        """Let go of what is held."""


def main(control_fd: int) -> int:
    """Keep one engine until the supervisor says stop (0) or is gone; 1 where the engine failed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure()
    return asyncio.run(_run(control_fd))


async def _run(control_fd: int) -> int:
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    reader, writer = await asyncio.open_connection(sock=control, limit=_LINE_LIMIT)
    line = await reader.readline()
    if not line:
        return 1
    first = orjson.loads(line)
    standing = Standing("starting")
    said = _Said(writer, standing)
    beating = asyncio.create_task(said.beat())
    stop: asyncio.Future[float | None] = asyncio.get_running_loop().create_future()
    obeying = asyncio.create_task(_obey(reader, stop))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _ask, stop, _DRAIN_SECONDS)
    keeper: Keeper | None = None
    try:
        config = ModelConfig.model_validate(first["model"])
        keeper = _keeper(config, Path(first["socket"]))
        said.standing = keeper.standing
        await _keep(keeper, said, stop)
    except ModelopsError as error:
        await said.failed(error)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever it is, the supervisor must be told
        await said.failed(EngineError(f"the keeper failed: {type(error).__name__}: {error}"))
        return 1
    finally:
        beating.cancel()
        obeying.cancel()
        if keeper is not None:
            await keeper.close()
    return 0


def _keeper(config: ModelConfig, path: Path) -> Keeper:
    if config.engine == ELSEWHERE:
        from modelops_servers.keeper.remote import RemoteKeeper

        return RemoteKeeper(config)
    from modelops.environments import find_environment
    from modelops_servers.keeper.vllm import VllmKeeper

    return VllmKeeper(config, path, find_environment(config.engine))


async def _keep(keeper: Keeper, said: _Said, stop: asyncio.Future[float | None]) -> None:
    """Start and watch until asked to stop; an engine's end is raised."""
    work = asyncio.create_task(_work(keeper, said))
    try:
        both: set[asyncio.Future[Any]] = {work, stop}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    await keeper.stop(stop.result())


async def _work(keeper: Keeper, said: _Said) -> None:
    describe = await keeper.start()
    said.say({"event": "ready", "describe": describe, **keeper.standing.report()})
    await keeper.watch()


class _Said:
    """What the supervisor is told."""

    def __init__(self, writer: asyncio.StreamWriter, standing: Standing) -> None:
        self.standing = standing
        self._writer = writer

    def say(self, message: dict[str, Any]) -> None:
        self._writer.write(orjson.dumps(message) + b"\n")

    async def beat(self) -> None:
        """Say every half second how it is; that the loop turns is told by it as well."""
        while True:
            self.say({"event": "beat", **self.standing.report()})
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def failed(self, error: ModelopsError) -> None:
        """Say so before the rest of the engine is gone, which takes a moment."""
        self.standing.set("failed", error.message.partition("\n")[0], "it is restarted")
        self.say({"event": "beat", **self.standing.report()})
        self.say({"event": "failed", "error": told(error)})
        with contextlib.suppress(OSError):
            await self._writer.drain()


async def _obey(reader: asyncio.StreamReader, stop: asyncio.Future[float | None]) -> None:
    with contextlib.suppress(ConnectionError):
        while line := await reader.readline():
            message = orjson.loads(line)
            if message.get("op") == "stop":
                _ask(stop, message.get("seconds"))
    # The supervisor is gone. So is the guardian, or it would have ended us: the group is ours.
    if os.getpgrp() == os.getsid(0) and os.getpgrp() != os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def _ask(stop: asyncio.Future[float | None], seconds: float | None) -> None:
    if not stop.done():
        stop.set_result(seconds)
