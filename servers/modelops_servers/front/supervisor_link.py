"""What a front asks of the supervisor, and tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from modelops_servers.dataplane.failure import heard


class SupervisorLink:
    """JSON lines over the control socket; answers find their questions by number."""

    def __init__(self, index: int, writer: asyncio.StreamWriter) -> None:
        self.index = index
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._last = 0

    def send(self, message: dict[str, Any]) -> None:
        """Tell something."""
        self._writer.write(orjson.dumps(message) + b"\n")

    async def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Ask for something and return the answer.

        Raises:
            ModelopsError: the supervisor refused, or what it tried failed.
        """
        self._last = number = self._last + 1
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"event": "ask", "id": number, "op": op, "front": self.index, **fields})
        try:
            answer: dict[str, Any] = await waiting
            return answer
        finally:
            del self._waiting[number]

    def heard(self, message: dict[str, Any]) -> None:
        """Take the supervisor's answer."""
        waiting = self._waiting.get(message["id"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(heard(message["error"]))
        else:
            waiting.set_result(message["result"])
