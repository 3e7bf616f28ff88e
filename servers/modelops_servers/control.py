"""A child's end of the control channel: JSON lines over the socket that the supervisor gave it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import orjson

Message = dict[str, Any]


class Control:
    """Blocking reads for one thread, writes from any."""

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._file = self._socket.makefile("rb")
        self._lock = threading.Lock()

    def send(self, message: Message) -> bool:
        """Send one message; False where the supervisor is gone."""
        try:
            with self._lock:
                self._socket.sendall(orjson.dumps(message) + b"\n")
        except OSError:
            return False
        return True

    def messages(self) -> Iterator[Message]:
        """Yield what the supervisor says, until it is gone."""
        try:
            for line in self._file:
                yield orjson.loads(line)
        except OSError:
            return
