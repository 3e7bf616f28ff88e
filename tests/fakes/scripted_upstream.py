"""An HTTP server that does what no real engine can be made to do; never called an engine.

A script is a coroutine over one ``Exchange``: it writes whatever bytes it likes, whenever it
likes, and sees when the other side closes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import uvloop

SSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Transfer-Encoding: chunked\r\n"
)
ROLE = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
STOP = '{"choices":[{"index":0,"delta":{"content":""},"finish_reason":"stop"}]}'
DONE = b"data: [DONE]\n\n"


def token(content: str) -> str:
    """One chunk of a chat, as vLLM writes it."""
    choice = {"index": 0, "delta": {"content": content}, "logprobs": None, "finish_reason": None}
    whole = {
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [choice],
    }  # fmt: skip
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False)


def usage(prompt: int, completion: int) -> str:
    """The chunk that ends a stream whose usage was asked for."""
    counts = {"prompt_tokens": prompt, "total_tokens": prompt + completion}
    return json.dumps({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
        "choices": [], "usage": {**counts, "completion_tokens": completion},
    })  # fmt: skip


def event(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


TOKENS = [event(token(t)) for t in ("日本", "語", "🙂", "ok")]
STREAM = [event(ROLE), *TOKENS, event(STOP), DONE]


class Exchange:
    """One request, and the connection to answer it on."""

    def __init__(
        self, upstream: ScriptedUpstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.upstream = upstream
        self._reader = reader
        self._writer = writer
        self.path = ""
        self.headers: dict[str, str] = {}
        self.raw_headers: list[tuple[str, str]] = []
        self.body = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    async def read(self) -> bool:
        """Take in the next request; False where the connection has ended."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        first, *lines = head.decode("latin-1").split("\r\n")
        self.path = first.split(" ")[1]
        pairs = [line.partition(": ")[::2] for line in lines if line]
        self.raw_headers = pairs
        self.headers = {name.lower(): value for name, value in pairs}
        if self.headers.get("transfer-encoding") == "chunked":
            self.body = b""
            while size := int(await self._reader.readline(), 16):
                self.body += await self._reader.readexactly(size)
                await self._reader.readexactly(2)
            await self._reader.readline()
        else:
            self.body = await self._reader.readexactly(int(self.headers.get("content-length", 0)))
        return True

    async def send(self, data: bytes) -> None:
        """Write raw bytes, head and framing included."""
        self._writer.write(data)
        await self._writer.drain()

    async def head(self, *lines: bytes) -> None:
        """Begin a stream of events."""
        await self.send(SSE + b"".join(line + b"\r\n" for line in lines) + b"\r\n")

    async def piece(self, data: bytes) -> None:
        """Write one chunk of the stream."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def stream(self, *pieces: bytes, pause: float = 0) -> None:
        """Answer with a whole stream, chunk by chunk."""
        await self.head()
        for data in pieces:
            await self.piece(data)
            if pause:
                await asyncio.sleep(pause)
        await self.end()

    async def answer(self, body: Any, status: int = 200, *lines: bytes) -> None:
        """Answer with a whole body."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = b"HTTP/1.1 %d Said\r\nContent-Length: %d\r\n" % (status, len(data))
        if not any(line.lower().startswith(b"content-type") for line in lines):
            head += b"Content-Type: application/json\r\n"
        await self.send(head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + data)

    async def left(self) -> float:
        """Wait until the other side closes; return when that was, on the monotonic clock."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass
        at = time.monotonic()
        self.upstream.left.append(at)
        return at

    def reset(self) -> None:
        """End the connection as a process does that is killed."""
        self._writer.transport.abort()

    def close(self) -> None:
        self._writer.close()


Script = Callable[[Exchange], Awaitable[None]]


class ScriptedUpstream:
    """Listens on a port, or at ``socket``; ``script`` may be changed while it runs."""

    def __init__(self, script: Script | None = None, socket: Path | None = None) -> None:
        self.script = script or silent
        self.socket = socket
        self.port = 0
        self.requests: list[Exchange] = []
        self.connections = 0
        self.open = 0
        self.left: list[float] = []
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        """End it, if that has not been done."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        if self.socket is not None:
            server = await asyncio.start_unix_server(self._accept, str(self.socket))
        else:
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while True:
                exchange = Exchange(self, reader, writer)
                if not await exchange.read():
                    return
                self.requests.append(exchange)
                await self.script(exchange)
                if writer.is_closing():
                    return
        except ConnectionError:
            self.left.append(time.monotonic())
        finally:
            self.open -= 1
            writer.close()


async def silent(exchange: Exchange) -> None:
    """Take the request, and say nothing."""
    await exchange.left()


async def endless(exchange: Exchange) -> None:
    """Write a token every 20 ms, until nobody takes them."""
    await exchange.head()
    while True:
        await exchange.piece(TOKENS[0])
        await asyncio.sleep(0.02)


async def whole_stream(exchange: Exchange) -> None:
    """Write ``STREAM``, and count a prompt's tokens when asked."""
    if exchange.path == "/tokenize":
        await exchange.answer({"count": 11, "max_model_len": 4096, "tokens": [1] * 11})
    else:
        await exchange.stream(*STREAM)


@contextlib.contextmanager
def scripted(
    script: Script | None = None, socket: Path | None = None
) -> Iterator[ScriptedUpstream]:
    upstream = ScriptedUpstream(script, socket)
    upstream.start()
    try:
        yield upstream
    finally:
        upstream.stop()
