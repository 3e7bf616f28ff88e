"""One request as it is sent, and what was asked with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What to send; ``items`` is how many inputs it carries.

    ``stream`` says that events are expected, which the scenario's reader takes.
    ``input_tokens`` and ``output_tokens`` are what the request was made to have, where that was
    asked for. ``messages`` is the conversation so far, where it is one.
    """

    path: str
    body: bytes
    headers: dict[str, str]
    items: int
    name: str
    method: str = "POST"
    stream: bool = False
    input_tokens: int | None = None
    output_tokens: int | None = None
    messages: tuple[dict[str, Any], ...] = ()
