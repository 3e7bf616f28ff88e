"""What passes between the gateway and its hot endpoints: plain values, no framework."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from modelops_servers.front.limits import HeaderMap, Receive

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Call:
    """One request on a hot route; ``model`` and ``version`` are set once known, for the metrics."""

    __slots__ = ("began", "deadline", "headers", "model", "receive", "version")

    def __init__(self, receive: Receive, headers: HeaderMap, seconds: float) -> None:
        self.receive = receive
        self.headers = headers
        self.began = time.monotonic()
        self.deadline = self.began + seconds
        self.model = ""
        self.version = ""


class Reply:
    """One answer: its body in parts, its headers without length and request id."""

    __slots__ = ("headers", "parts", "status")

    def __init__(
        self,
        parts: Sequence[bytes | memoryview],
        headers: list[tuple[bytes, bytes]],
        status: int = 200,
    ) -> None:
        self.parts = parts
        self.headers = headers
        self.status = status


class Streamed:
    """An answer that is out already; ``status`` is what became of it, for the metrics."""

    __slots__ = ("status",)

    def __init__(self, status: int) -> None:
        self.status = status


class Outlet:
    """Where an endpoint whose answer comes piece by piece puts it; each piece is sent at once."""

    __slots__ = ("_send", "request_id", "started")

    def __init__(self, send: Send, request_id: bytes) -> None:
        self._send = send
        self.request_id = request_id
        self.started = False

    async def start(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        """Send the head; from now on the answer is this outlet's to end."""
        self.started = True
        told = [*headers, (b"x-request-id", self.request_id)]
        await self._send({"type": "http.response.start", "status": status, "headers": told})

    async def write(self, piece: bytes) -> None:
        """Send a piece, once the client has taken enough of those before."""
        await self._send({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        """End the answer."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
