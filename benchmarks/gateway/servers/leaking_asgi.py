"""An ASGI endpoint that leaks on purpose: what the soak must be able to see."""

from __future__ import annotations

import os
from typing import Any

from gateway.servers.bare_asgi import serve
from gateway.servers.session import arguments

BYTES_PER_REQUEST = 128
REQUESTS_PER_DESCRIPTOR = 1000


class Leaking:
    """Answers every request with the same bytes, and keeps a little of each."""

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._descriptors: list[int] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG002 - ASGI
        while (await receive()).get("more_body", False):
            pass
        self._kept.append(bytearray(BYTES_PER_REQUEST))
        if len(self._kept) % REQUESTS_PER_DESCRIPTOR == 0:
            self._descriptors.append(os.dup(0))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})


def main() -> None:
    serve(Leaking(), arguments(__doc__).parse_args().port)


if __name__ == "__main__":
    main()
