"""A server that streams what the prompt says, at no cost worth speaking of; never called an engine.

Run as ``python -m streams.upstream PORT``.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from typing import Any

import uvloop

from streams.wire import DONE, MODEL, Script, event, framed

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = framed(DONE) + b"0\r\n\r\n"
_MODELS = json.dumps({
    "object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "nobody"}],
}).encode()  # fmt: skip
_FRAME = len(framed(event(0)))


@functools.cache
def _frames(tokens: int) -> bytes:
    """All chunks of a stream but its last token and its end."""
    return b"".join(framed(event(n)) for n in range(tokens - 1))


class Upstream(asyncio.Protocol):
    """One connection; requests one after another."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._got = b""

    def data_received(self, data: bytes) -> None:
        came = self._loop.time()
        self._got += data
        head, between, body = self._got.partition(b"\r\n\r\n")
        if not between:
            return
        if head.startswith(b"GET"):
            self._got = b""
            self._whole(_MODELS)
            return
        length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if len(body) < int(length):
            return
        self._got = b""
        script = Script.of(body)
        if script is None:
            raise RuntimeError(f"no script in {body!r}")
        self._task = self._loop.create_task(self._emit(script, came))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._task is not None:
            self._task.cancel()

    def _whole(self, body: bytes) -> None:
        head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
        self._transport.write(f"{head}{len(body)}\r\n\r\n".encode() + body)

    async def _emit(self, script: Script, came: float) -> None:
        write, burst = self._transport.write, script.burst
        frames = memoryview(_frames(script.tokens))
        last = framed(event(script.tokens - 1, last=True))
        write(_HEAD)
        due = came + script.first_us / 1e6
        for begin in range(0, script.tokens, burst):
            if script.every_us or script.first_us:
                await asyncio.sleep(due - self._loop.time())
                due += script.every_us / 1e6
            piece = frames[begin * _FRAME : (begin + burst) * _FRAME]
            write(bytes(piece) + last if begin + burst >= script.tokens else piece)
            if not script.every_us:
                await asyncio.sleep(0)
                await self._writable.wait()
        write(_END)


async def serve(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Upstream, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
