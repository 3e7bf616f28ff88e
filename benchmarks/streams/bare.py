"""What a proxy cannot do without: a request out, its bytes back. ``python -m streams.bare``."""

from __future__ import annotations

import sys
from typing import Any

import aiohttp
import uvicorn
import uvloop


async def serve(port: int, upstream: str) -> None:
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


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), sys.argv[2]))
