"""The token path beside a bare pass-through: tokens for each second of the proxy's processor.

A scripted upstream emits chat chunks as fast as they are read, over 200 streams at once, each token
in an HTTP chunk of its own: once written one by one, once in bursts. The contenders take turns in
one run: the gateway's path (keys, request ids, parsing, admission, watching, scanning, metrics)
and an aiohttp → uvicorn pass-through that does nothing else. Ratios, never absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import uvloop

TARGET = 0.7
_REQUEST = json.dumps({
    "model": "chat", "stream": True, "messages": [{"role": "user", "content": "Say something."}],
}).encode()  # fmt: skip
_CHUNK = (
    b'data: {"id":"chatcmpl-8b5c2f4e9d3a4c1f","object":"chat.completion.chunk",'
    b'"created":1764500000,"model":"m","choices":[{"index":0,"delta":{"content":" token"},'
    b'"logprobs":null,"finish_reason":null}]}\n\n'
)
_FRAME = b"%x\r\n%s\r\n" % (len(_CHUNK), _CHUNK)
_DONE = b"data: [DONE]\n\n"
_END = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_DONE), _DONE)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Upstream(asyncio.Protocol):
    """Answers every request with ``tokens`` chunks, ``burst`` of them in one write."""

    def __init__(self, tokens: int, burst: int) -> None:
        self._tokens, self._burst = tokens, burst
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._writable = asyncio.Event()
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if b'"model"' in data:
            self._task = asyncio.get_running_loop().create_task(self._emit())

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._task is not None:
            self._task.cancel()

    async def _emit(self) -> None:
        self._transport.write(_HEAD)
        frames = _FRAME * self._burst
        for _ in range(self._tokens // self._burst):
            self._transport.write(frames)
            await asyncio.sleep(0)
            await self._writable.wait()
        self._transport.write(_END)


async def serve_upstream(port: int, tokens: int, burst: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Upstream(tokens, burst), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


async def serve_bare(port: int, upstream: str) -> None:
    """What a proxy cannot do without: a request out, its bytes back."""
    import aiohttp
    import uvicorn

    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
    )  # fmt: skip

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        async with session.post(upstream + scope["path"], data=body) as answer:
            headers = [(b"content-type", answer.headers["content-type"].encode())]
            await send({
                "type": "http.response.start", "status": answer.status, "headers": headers
            })  # fmt: skip
            async for chunk in answer.content.iter_any():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        app, port=port, http="httptools", loop="none", lifespan="off", access_log=False,
        log_config=None, backlog=1024,
    )  # fmt: skip
    await uvicorn.Server(config).serve()


async def serve_gateway(port: int, upstream: str) -> None:
    """The gateway's own HTTP, outermost layer and token path, over one engine."""
    from modelops.config import LimitsConfig
    from modelops_servers.front.auth import Keys
    from modelops_servers.front.gateway import Gateway
    from modelops_servers.front.http_server import HttpServer
    from modelops_servers.front.metrics import Metrics
    from modelops_servers.front.models import Models
    from modelops_servers.front.openai.endpoint import TextEndpoint
    from modelops_servers.front.openai.upstream import Upstream as Engine

    metrics, limits = Metrics(), LimitsConfig()
    models = Models(limits, metrics, 1, lambda _: None)

    class Chat:
        name, engine_name, context, tokenizes = "chat", "m", 4096, False
        metrics: Any = None

        def __init__(self) -> None:
            self._engine = Engine(upstream)

        def admit(self, tokens: int) -> None: ...

        def leave(self, tokens: int) -> None: ...

        def engine(self) -> Engine:
            return self._engine

    chat = Chat()
    chat.metrics = metrics.text("chat")
    endpoint = TextEndpoint(lambda _: chat, limits, models.json)

    async def nothing(scope: Any, receive: Any, send: Any) -> None:
        raise NotImplementedError

    server = HttpServer(Gateway(models, metrics, Keys([]), nothing, text=endpoint))
    with socket.create_server(("127.0.0.1", port), backlog=1024) as listening:
        await server.serve(sockets=[listening])


async def read_all(port: int, streams: int) -> int:
    """Ask for ``streams`` answers at once; return how many bytes came, framing included."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n"

    class Reader(asyncio.Protocol):
        def __init__(self) -> None:
            self.over = asyncio.get_running_loop().create_future()
            self.count, self.tail = 0, b""

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            transport.write(head % len(_REQUEST) + _REQUEST)

        def data_received(self, data: bytes) -> None:
            self.count += len(data)
            self.tail = (self.tail + data[-16:])[-16:]
            if self.tail.endswith(b"0\r\n\r\n"):
                assert b"200 OK" in data[:20] or self.count > len(data)
                self.over.set_result(None)
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
            if not self.over.done():
                self.over.set_exception(RuntimeError("the answer was cut"))

    loop = asyncio.get_running_loop()
    made = [await loop.create_connection(Reader, "127.0.0.1", port) for _ in range(streams)]
    readers = [reader for _, reader in made]
    await asyncio.gather(*(reader.over for reader in readers))
    return sum(reader.count for reader in readers)


@contextlib.contextmanager
def process(role: str, *arguments: Any) -> Iterator[tuple[psutil.Process, int]]:
    """Start this file in another role; yields its process and port once it accepts."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--role", role, str(port), *map(str, arguments)]
    child = subprocess.Popen(command)
    try:
        for _ in range(1000):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if child.poll() is not None:
                sys.exit(f"{role} did not start")
            time.sleep(0.02)
        yield psutil.Process(child.pid), port
    finally:
        child.kill()
        child.wait()


def measure(options: argparse.Namespace, burst: int, tokens: int) -> dict[str, list[float]]:
    """Return tokens per processor second of each contender, one figure a round."""
    found: dict[str, list[float]] = {"bare": [], "gateway": []}
    with process("upstream", tokens, burst) as (_, upstream), contextlib.ExitStack() as stack:
        url = f"http://127.0.0.1:{upstream}"
        contenders = {name: stack.enter_context(process(name, url)) for name in found}
        for number in range(options.rounds + 1):
            for name, (child, port) in contenders.items():
                before = child.cpu_times()
                got = uvloop.run(read_all(port, options.streams))
                after = child.cpu_times()
                total = tokens * options.streams
                assert got > total * len(_CHUNK), "bytes are missing"
                used = after.user + after.system - before.user - before.system
                if number:  # the first one warms up
                    found[name].append(total / used)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="1 round, few tokens: does it run?")
    parser.add_argument("--role", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        role, port, *rest = options.role
        if role == "upstream":
            uvloop.run(serve_upstream(int(port), *map(int, rest)))
        else:
            serve = {"bare": serve_bare, "gateway": serve_gateway}[role]
            uvloop.run(serve(int(port), *rest))
        return
    options.rounds = 1 if options.quick else options.rounds
    missed = False
    for burst, tokens in ((1, 400), (32, 3200)):
        found = measure(options, burst, tokens // 4 // burst * burst if options.quick else tokens)
        pairs = zip(found["gateway"], found["bare"], strict=True)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        missed = missed or ratio < TARGET
        figures = ", ".join(f"{n} {statistics.median(v):,.0f}" for n, v in found.items())
        print(f"{options.streams} streams, {burst} tokens a write: tokens/CPU s {figures}")
        verdict = "ok" if ratio >= TARGET else "MISSED"
        print(f"  gateway / bare: {ratio:.2f} (target {TARGET}) {verdict}")
    sys.exit(1 if missed and not options.quick else 0)


if __name__ == "__main__":
    main()
