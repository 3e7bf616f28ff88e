"""What a request asks for, and the toy tokenizer that counts it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import orjson

_DEFAULT_TOKENS = 16


def tokenize(text: str) -> list[int]:
    """Return a number for each token: every word between white space is one token."""
    return [zlib.crc32(word.encode()) % 50_000 for word in text.split()]


def count(text: str) -> int:
    """Return how many tokens a text has."""
    return len(text.split())


class BadRequestError(Exception):
    """The request's body cannot be meant; the text says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for text; ``chat`` or plain completion."""

    chat: bool
    model: str
    stream: bool
    tokens: int
    prompt_tokens: int
    usage: bool
    continuous_usage: bool


def texts_of(body: dict[str, Any]) -> list[str]:
    """Return the texts of a prompt, of messages or of an embedding's input."""
    if "messages" in body:
        return [text for message in body["messages"] for text in _content(message["content"])]
    given = body.get("prompt", body.get("input", ""))
    return [given] if isinstance(given, str) else [_word(item) for item in given]


def read_json(raw: bytes) -> dict[str, Any]:
    """Return the object of a body.

    Raises:
        BadRequestError: it is none.
    """
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequestError(f"no JSON: {error}") from None
    if not isinstance(body, dict):
        raise BadRequestError("the body is no object")
    return body


def read_asked(raw: bytes, default_model: str, *, chat: bool) -> Asked:
    """Read a request for text.

    Raises:
        BadRequestError: it cannot be meant.
    """
    body = read_json(raw)
    most = body.get("max_completion_tokens") or body.get("max_tokens") or _DEFAULT_TOKENS
    options = body.get("stream_options") or {}
    try:
        prompt = sum(map(count, texts_of(body)))
    except (AttributeError, KeyError, TypeError) as error:
        raise BadRequestError(f"the prompt cannot be read: {error!r}") from None
    if not isinstance(most, int) or most < 1:
        raise BadRequestError("max_tokens is no positive number")
    return Asked(
        chat=chat,
        model=str(body.get("model", default_model)),
        stream=bool(body.get("stream")),
        tokens=most,
        prompt_tokens=prompt,
        usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
    )


def _content(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part.get("type") == "text"]


def _word(item: Any) -> str:
    """Return a text, or for a token's number a word, so that it counts as one."""
    return item if isinstance(item, str) else "word"
