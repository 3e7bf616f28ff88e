"""One front from start to end: sockets from the supervisor in, drained exit out."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import time
from typing import Any

import orjson
import uvloop

from modelops.config import LimitsConfig, ServerConfig
from modelops_servers import logs
from modelops_servers.front.app import build
from modelops_servers.front.gateway import Gateway
from modelops_servers.front.http_server import HttpServer
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.models import Models
from modelops_servers.front.supervisor_link import SupervisorLink

_log = logging.getLogger(__name__)

_BEAT_SECONDS = 0.5
_LINE_LIMIT = 64 * 2**20


def main(control_fd: int) -> int:
    """Serve until the supervisor says drain (0) or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logs.configure()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(control_fd))
    except Exception:  # noqa: BLE001 - whatever it is, it is logged and a new start made
        _log.exception("the front failed")
        os._exit(1)
    # An engine inside this process may be in a native call that nobody can end.
    os._exit(0)


async def _run(control_fd: int) -> None:
    control = socket.socket(fileno=control_fd)
    control.set_inheritable(False)
    reader, writer = await asyncio.open_connection(sock=control, limit=_LINE_LIMIT)
    beating = asyncio.create_task(_beat(writer))
    # Where this process is kept in reserve, it may be long before it is told what it is to be.
    line = await reader.readline()
    if not line:
        os._exit(1)
    first = orjson.loads(line)
    link = SupervisorLink(first["index"], writer)
    front = _Front(first, link)
    front.topology(first["topology"])
    serving = asyncio.create_task(front.serve())
    serving.add_done_callback(_end_where_it_failed)
    while line := await reader.readline():
        message = orjson.loads(line)
        match message["op"]:
            case "topology":
                front.topology(message["models"])
            case "fronts":
                front.standing(message["standing"])
            case "metrics":
                text = front.metrics.render().decode()
                link.send({"event": "answer", "id": message["id"], "text": text})
            case "reply":
                link.heard(message)
            case "drain":
                await front.drain(message["seconds"])
                await serving
                beating.cancel()
                return
    # The supervisor is gone; the guardian is about to end this process too.
    os._exit(1)


async def _beat(writer: asyncio.StreamWriter) -> None:
    """Say every half second that the loop turns."""
    while True:
        writer.write(b'{"event":"beat"}\n')
        await asyncio.sleep(_BEAT_SECONDS)


def _end_where_it_failed(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and serving.exception() is not None:
        _log.error("the front failed", exc_info=serving.exception())
        os._exit(1)


class _Front:
    def __init__(self, first: dict[str, Any], link: SupervisorLink) -> None:
        said = first["config"]
        server, limits = ServerConfig(**said["server"]), LimitsConfig(**said["limits"])
        self.metrics = Metrics()
        self._link = link
        self._models = Models(limits, self.metrics, first["fronts"], link.send)
        self._servers: list[tuple[HttpServer, socket.socket]] = []
        self._apps: list[Gateway] = []
        for name, fd in first["fds"].items():
            app = build(
                server,
                self._models,
                self.metrics,
                link,
                fronts=first["fronts"],
                admin=name == "admin",
            )
            self._apps.append(app)
            http = HttpServer(app, header_seconds=limits.header_seconds)
            self._servers.append((http, socket.socket(fileno=fd)))
        self._inbox: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()

    async def serve(self) -> None:
        """Answer from early on; the models become ready as they do."""
        # Connections wait in the socket until there is an answer for them: a front that comes back
        # knows its models, and reaches what is ready, before it takes the first.
        await self._models.apply(await self._newest())
        await self._models.reach()
        background = [
            asyncio.create_task(self._follow()),
            asyncio.create_task(self._models.watch()),
        ]
        running: list[asyncio.Task[None]] = [
            asyncio.create_task(http.serve(sockets=[sock])) for http, sock in self._servers
        ]
        while not all(http.started for http, _ in self._servers):
            await asyncio.sleep(0.005)
        self._link.send({"event": "serving", "pid": os.getpid()})
        # What is loaded now lives as long as the process: keep the collector from walking it.
        gc.collect()
        gc.freeze()
        served = asyncio.ensure_future(asyncio.gather(*running))
        # Deaf to the supervisor a front would be wrong about its models: a new start is better.
        watched: list[asyncio.Future[Any]] = [served, *background]
        await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in background:
            if task.done():
                await task
            task.cancel()
        for app in self._apps:
            await app.close()
        await self._models.close()

    def topology(self, models: list[dict[str, Any]]) -> None:
        """Queue what the supervisor says; only its last word counts."""
        self._inbox.put_nowait(models)

    def standing(self, fronts: list[dict[str, Any]]) -> None:
        """Take down how all the fronts are."""
        self._models.fronts = fronts

    async def drain(self, seconds: float) -> None:
        """Admit nothing more, finish what is in flight up to ``seconds``, then stop listening."""
        end = time.monotonic() + seconds
        self._models.drain()
        while self._models.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._models.abandon()
        for http, _ in self._servers:
            http.should_exit = True

    async def _follow(self) -> None:
        while True:
            await self._models.apply(await self._newest())

    async def _newest(self) -> list[dict[str, Any]]:
        """Return the supervisor's last word, once there is one."""
        models = await self._inbox.get()
        while not self._inbox.empty():
            models = self._inbox.get_nowait()
        return models
