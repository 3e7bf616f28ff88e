"""The seam of scenarios: one request at a time, and an answer that is right or says why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol, Self

import orjson

from modelops_loadtests.spec import Encoding

Get = Callable[[str], tuple[int, Any]]
"""GET a path of the server: its status and its parsed JSON body (None where it is no JSON)."""


@dataclass(frozen=True)
class Settings:
    """What a user chose for a scenario; each scenario uses what concerns it."""

    model: str
    data: Path | None = None
    encoding: Encoding = "json"
    batch: int = 1
    dims: dict[str, int] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True)
class Request:
    """What to send; ``items`` is how many inputs it carries."""

    path: str
    body: bytes
    headers: dict[str, str]
    items: int
    name: str
    method: str = "POST"


@dataclass(frozen=True)
class Reply:
    """A whole reply with status 200; header names are in lower case."""

    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What a right answer held: inputs answered, and their tokens where the server counted them."""

    items: int
    input_tokens: int | None = None


class BadAnswerError(Exception):
    """A reply that came with status 200 and is not right; ``kind`` is its bounded class."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Scenario(Protocol):
    """Registered by name in ``modelops.registry``, or by an entry point ``modelops.scenarios``."""

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:
        """Read what is needed from the server and from files, or raise a ModelopsError."""

    def request(self, rng: Random) -> Request:
        """Return the next request to send."""

    def check(self, request: Request, reply: Reply) -> Answer:
        """Return what the reply held, or raise BadAnswerError."""


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a reply that must be a JSON object and no error.

    Raises:
        BadAnswerError: ``not_finite`` for bare NaN or Infinity, ``invalid_body`` for anything else
            that is no JSON object, ``error_in_body`` for a 200 that carries an error.
    """
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        if any(word in body for word in (b"NaN", b"Infinity")):
            raise BadAnswerError("not_finite", "the body has bare NaN or Infinity") from None
        raise BadAnswerError("invalid_body", f"no JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadAnswerError("invalid_body", f"a JSON {type(parsed).__name__}, not an object")
    if parsed.get("error") is not None:
        raise BadAnswerError("error_in_body", error_text(parsed))
    return parsed


def error_text(parsed: Any) -> str:
    """Return the message of an OpenAI or Open Inference Protocol error body, shortened."""
    error = parsed.get("error") if isinstance(parsed, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:200]
