"""The seam of scenarios: one request at a time, and an answer that is right or says why not.

A scenario is one class with ``prepare``, ``request`` and ``check``; one whose replies are streams
has ``reader``, too. It is registered by name in ``modelops.registry``, or by an entry point of the
group ``modelops.scenarios``. Nothing here knows of locust or of gevent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal, Protocol, Self

import orjson

from modelops_loadtests.client.request import Request
from modelops_loadtests.spans import Span
from modelops_loadtests.spec import Encoding

__all__ = [
    "Answer", "BadAnswerError", "Get", "Reply", "Request", "Scenario", "Settings", "StreamReader",
    "StreamScenario", "error_text", "parse_json",
]  # fmt: skip


class Get(Protocol):
    """GETs a path of the server, or POSTs ``body`` as JSON: status, and the parsed JSON reply.

    The reply is None where it is no JSON.
    """

    def __call__(self, path: str, body: Any = None, /) -> tuple[int, Any]:
        """Ask."""


@dataclass(frozen=True)
class Settings:
    """What a user chose for a scenario; each scenario uses what concerns it."""

    model: str
    data: Path | None = None
    encoding: Encoding = "json"
    batch: int = 1
    dims: dict[str, int] = field(default_factory=dict)
    seed: int = 0
    input_tokens: Span | None = None
    output_tokens: Span | None = None
    shared_prefix: float = 0.0
    """Share of each prompt that all prompts have in common."""
    tokenizer: Path | None = None
    temperature: float | None = None
    stream: bool = True
    ignore_eos: bool | None = None
    """Whether replies run to their asked length; None: where the server is known to take it."""


@dataclass(frozen=True)
class Reply:
    """A whole reply with status 200; header names are in lower case."""

    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What came back: inputs answered, tokens, and of a stream its moments (perf_counter).

    The fields are those of ``Sample``. ``text`` is what a model wrote, for a next turn.
    """

    items: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_from: Literal["usage", "tokenizer"] | None = None
    first_token: float | None = None
    first_output: float | None = None
    last_token: float | None = None
    chunk_at: Sequence[float] = ()
    chunk_tokens: Sequence[float] | None = None
    coalesced: int = 0
    text: str = ""


class BadAnswerError(Exception):
    """A reply that came with status 200 and is not right; ``kind`` is its bounded class."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail


class Scenario(Protocol):
    """What is sent, and how a whole reply is checked."""

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:
        """Read what is needed from the server and from files, or raise a ModelopsError."""

    def request(self, rng: Random) -> Request:
        """Return the next request to send; quickly, since it is made when it is due."""

    def check(self, request: Request, reply: Reply) -> Answer:
        """Return what the reply held, or raise BadAnswerError."""


class StreamReader(Protocol):
    """Reads one reply that is a stream; called with each event as it arrives, and may not wait."""

    finished: bool
    """Whether the protocol's own ending has come."""

    def event(self, kind: bytes, data: bytes, at: float, read: int) -> None:
        """Take an event that was complete at ``at`` (perf_counter), in the read of that number."""

    def answer(self) -> Answer:
        """Return what has come so far; also of a stream that broke."""

    def problem(self) -> BadAnswerError | None:
        """Return why what came, and ended, is not right; None where it is."""


class StreamScenario(Scenario, Protocol):
    """A scenario whose requests have ``stream`` set."""

    def reader(self, request: Request) -> StreamReader:
        """Return what reads the reply to this request."""


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
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    text = error.get("message") if isinstance(error, dict) else error
    return str(text)[:200]
