"""What TensorRT says while it works: kept, because its calls return None and tell only a logger."""

from __future__ import annotations

from collections import deque
from typing import Any

_KEPT = 40
_LENGTH = 300


class Messages:
    """The last warnings and errors; ``logger`` is what TensorRT's objects are made with."""

    def __init__(self) -> None:
        self.logger: Any = None
        self.errors: deque[str] = deque(maxlen=_KEPT)
        self.warnings: deque[str] = deque(maxlen=_KEPT)

    def said(self) -> str:
        """Return the errors since the last ``forget``, or that there were none."""
        return "; ".join(dict.fromkeys(self.errors)) or "TensorRT gave no reason"

    def forget(self) -> None:
        """Begin anew, before a call whose errors matter."""
        self.errors.clear()


def listen(trt: Any) -> Messages:
    """Return messages with a logger of the bindings ``trt``."""
    messages = Messages()
    grave = (trt.ILogger.INTERNAL_ERROR, trt.ILogger.ERROR)

    def log(_self: Any, severity: Any, text: str) -> None:
        line = " ".join(text.split())[:_LENGTH]
        if severity in grave:
            messages.errors.append(line)
        elif severity == trt.ILogger.WARNING:
            messages.warnings.append(line)

    def begin(self: Any) -> None:
        # A class of the bindings must be initialised by name: super() leaves it without its part.
        trt.ILogger.__init__(self)

    messages.logger = type("Logger", (trt.ILogger,), {"__init__": begin, "log": log})()
    return messages
