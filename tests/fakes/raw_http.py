"""Servers of the gateway's HTTP in this process, and a client that sees every byte."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import uvloop

from modelops_servers.front.http_server import HttpServer
from modelops_servers.front.limits import ClientLeftError, SlowBodyError, read_body

GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
HEADER_SECONDS = 0.5


async def answer(send: Any, value: Any, status: int = 200, *headers: tuple[bytes, bytes]) -> None:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body})


class App:
    """Routes of what a test needs to see from within."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.views: list[memoryview] = []
        self.release = threading.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await getattr(self, scope["path"].strip("/").replace("/", "_"))(scope, receive, send)

    async def echo(self, scope: Any, receive: Any, send: Any) -> None:
        body = await read_body(receive, dict(scope["headers"]), 2**20, 30)
        headers = [[n.decode("latin-1"), v.decode("latin-1")] for n, v in scope["headers"]]
        shown = {k: scope[k] for k in ("method", "path", "http_version", "client")}
        query = scope["query_string"].decode()
        await answer(send, {**shown, "query": query, "headers": headers, "body": len(body)})

    async def early(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"early")

    async def early_close(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"early", 413, (b"connection", b"close"))

    async def held(self, scope: Any, receive: Any, send: Any) -> None:
        while not self.release.is_set():
            await asyncio.sleep(0.01)
        await answer(send, b"held")

    async def watched(self, scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.events.append("left")

    async def into(self, scope: Any, receive: Any, send: Any) -> None:
        def memory(size: int) -> memoryview:
            self.views.append(np.zeros(size, np.uint8).data)
            return self.views[-1]

        try:
            body = await read_body(receive, dict(scope["headers"]), 2**28, 1, into=memory)
        except ClientLeftError:
            self.events.append("left")
        except SlowBodyError:
            await answer(send, b"slow", 408)
        else:
            assert body is self.views[-1]
            await answer(send, {"sum": int(np.frombuffer(body, np.uint8).sum(dtype=np.int64))})

    async def stream(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in (b"a", b"", b"bc"):
            await asyncio.sleep(0.01)
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body"})

    async def large(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            for _ in range(64):
                self.events.append("sent")
                message: dict[str, Any] = {"type": "http.response.body", "body": bytes(2**20)}
                if len(self.events) == 1:
                    headers = [(b"content-length", str(2**26).encode())]
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({**message, "more_body": len(self.events) < 64})
        finally:
            self.events.append("over")

    async def whole(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, bytes(2**26))

    async def raises(self, scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("planted")

    async def raises_late(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        raise ValueError("planted")

    async def silent(self, scope: Any, receive: Any, send: Any) -> None:
        pass

    async def too_long(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"12"})

    async def too_short(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"3")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"12"})

    async def injects(self, scope: Any, receive: Any, send: Any) -> None:
        await answer(send, b"", 200, (b"x-name", b"a\r\nx-evil: 1"))

    async def no_content(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})


class Running:
    """Servers on one loop in a thread."""

    def __init__(self, *apps: Any, **options: Any) -> None:
        self.servers = [HttpServer(app, **options) for app in apps]
        self.sockets = [socket.create_server(("127.0.0.1", 0)) for _ in apps]
        self.ports = [s.getsockname()[1] for s in self.sockets]
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        while not all(s.started for s in self.servers):
            time.sleep(0.005)

    def _run(self) -> None:
        async def main() -> None:
            pairs = zip(self.servers, self.sockets, strict=True)
            await asyncio.gather(*(server.serve(sockets=[sock]) for server, sock in pairs))

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    def connect(self, index: int = 0) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[index]), timeout=15)

    def stop(self) -> None:
        for server in self.servers:
            server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()

    @property
    def connections(self) -> int:
        return sum(len(s.server_state.connections) for s in self.servers)


@contextlib.contextmanager
def running(*apps: Any, **options: Any) -> Iterator[Running]:
    server = Running(*apps, **{"header_seconds": HEADER_SECONDS, **options})
    try:
        yield server
    finally:
        server.stop()


class Reader:
    """Reads answers one after the other from a connection."""

    def __init__(self, link: socket.socket) -> None:
        self._file = link.makefile("rb")

    def answer(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        line = self._file.readline()
        assert line.startswith(b"HTTP/1.1 "), line
        headers: dict[str, str] = {}
        while (field := self._file.readline()) not in (b"\r\n", b""):
            name, value = field.decode().rstrip("\r\n").split(": ", 1)
            assert name not in headers
            headers[name] = value
        status = int(line.split()[1])
        if head_only or status in (100, 204):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int(self._file.readline(), 16):
                body += self._file.read(size)
                assert self._file.read(2) == b"\r\n"
            assert self._file.readline() == b"\r\n"
            return status, headers, body
        length = headers.get("content-length")
        return status, headers, self._file.read(int(length) if length is not None else -1)

    def json(self) -> Any:
        status, _, body = self.answer()
        assert status == 200, body
        return json.loads(body)

    def rest(self) -> bytes:
        return self._file.read()


def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def refused(link: socket.socket, status: int) -> str:
    """The connection's one answer is this refusal in the gateway's form; then it closes."""
    reader = Reader(link)
    got, headers, body = reader.answer()
    assert got == status, body
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert reader.rest() == b""
    message = json.loads(body)["error"]
    assert isinstance(message, str)
    return message
