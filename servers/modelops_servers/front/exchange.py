"""What passes between the gateway and its hot endpoints: plain values, no framework."""

from __future__ import annotations

import time
from collections.abc import Sequence

from modelops_servers.front.limits import HeaderMap, Receive


class Call:
    """One request on a hot route; ``model`` is set once it is known, for the metrics."""

    __slots__ = ("deadline", "headers", "model", "receive")

    def __init__(self, receive: Receive, headers: HeaderMap, seconds: float) -> None:
        self.receive = receive
        self.headers = headers
        self.deadline = time.monotonic() + seconds
        self.model = ""


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
