"""What a language model's reply held: a stream's chunks by their moments, or a whole reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from modelops_loadtests.scenarios.scenario import (
    Answer,
    BadAnswerError,
    Reply,
    error_text,
    parse_json,
)

Count = Callable[[str], int]
"""Counts the tokens of a text that a model wrote."""

_BROKEN_OFF = ("abort", "error")
_MOST_TOKENS = 10_000_000
"""A usage that tells more tells nothing."""


def _chat_text(choice: dict[str, Any]) -> tuple[str, str]:
    """Return a chunk's text that is not output (reasoning), and its output."""
    delta = choice.get("delta") or {}
    output = delta.get("content") or ""
    if output and len(delta) == 1:
        return "", output
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        output += (function.get("name") or "") + (function.get("arguments") or "")
    return delta.get("reasoning") or delta.get("reasoning_content") or "", output


def _completion_text(choice: dict[str, Any]) -> tuple[str, str]:
    return "", choice.get("text") or ""


def _is_error(chunk: dict[str, Any]) -> bool:
    """Return whether it tells an error: as OpenAI does, or by its type as some servers do."""
    return chunk.get("error") is not None or "error" in (chunk.get("object"), chunk.get("type"))


class GenerationReader:
    """Reads the stream of a chat, or of a completion: a ``StreamReader``.

    ``count`` counts the tokens where the server tells no usage; without it they stay unknown.
    """

    def __init__(self, *, chat: bool, count: Count | None = None) -> None:
        self.finished = False
        self._text_of = _chat_text if chat else _completion_text
        self._count = count
        self._first_output: float | None = None
        self._at: list[float] = []
        self._tokens: list[int] | None = []
        self._counted = 0
        self._coalesced = 0
        self._read = 0
        self._reasoning: list[str] = []
        self._output: list[str] = []
        self._usage: dict[str, Any] | None = None
        self._finish_reason: str | None = None
        self._problem: BadAnswerError | None = None

    def event(self, kind: bytes, data: bytes, at: float, read: int) -> None:
        """Take one event."""
        if self.finished:
            return
        if data == b"[DONE]":
            self.finished = True
            return
        if kind == b"error":
            self._fail("error_in_stream", data[:200].decode("utf-8", "replace"))
        try:
            self._chunk(orjson.loads(data), at, read)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            if data.strip() == b"[DONE]":
                self.finished = True
                return
            self._fail("invalid_body", f"{error}: {data[:120].decode('utf-8', 'replace')}")

    def _chunk(self, chunk: dict[str, Any], at: float, read: int) -> None:
        if _is_error(chunk):
            self._fail("error_in_stream", error_text(chunk))
            return
        usage = chunk.get("usage")
        if usage is not None:
            self._usage = usage
        choices = chunk.get("choices")
        if not choices:
            return
        choice = choices[0]
        reason = choice.get("finish_reason")
        if reason is not None:
            self._finish_reason = reason
        reasoning, output = self._text_of(choice)
        if not (reasoning or output):
            return
        if not (isinstance(reasoning, str) and isinstance(output, str)):
            raise TypeError("generated text is no string")
        self._at.append(at)
        if read == self._read:
            self._coalesced += 1
        self._read = read
        if reasoning:
            self._reasoning.append(reasoning)
        if output:
            self._output.append(output)
            if self._first_output is None:
                self._first_output = at
        if self._tokens is not None:
            self._credit(usage)

    def _credit(self, usage: dict[str, Any] | None) -> None:
        """Note the chunk's tokens; once one is not known, none of this stream's are."""
        total = None if usage is None else _whole_number(usage.get("completion_tokens"))
        if total is None or total < self._counted:
            self._tokens = None
            return
        assert self._tokens is not None  # noqa: S101
        self._tokens.append(total - self._counted)
        self._counted = total

    def _fail(self, kind: str, detail: str) -> None:
        if self._problem is None:
            self._problem = BadAnswerError(kind, detail)

    def answer(self) -> Answer:
        """Return what has come so far."""
        at = self._at
        text = "".join(self._output)
        told = tokens_of(self._usage, "".join(self._reasoning) + text, self._count)
        return Answer(
            items=1,
            **told,
            first_token=at[0] if at else None,
            first_output=self._first_output,
            last_token=at[-1] if at else None,
            chunk_at=at,
            chunk_tokens=self._tokens or None,
            coalesced=self._coalesced,
            text=text,
        )

    def problem(self) -> BadAnswerError | None:
        """Return why the reply that has ended is not right."""
        if self._problem is not None:
            return self._problem
        if self._finish_reason in _BROKEN_OFF:
            return BadAnswerError("error_in_stream", f"finish_reason is {self._finish_reason}")
        if not self.finished and self._finish_reason is None:
            return BadAnswerError("unfinished", "the stream ended without [DONE] or a reason")
        if not self._at:
            return BadAnswerError("empty_answer", "the stream ended, and nothing was generated")
        return None


def check_whole(reply: Reply, *, chat: bool, count: Count | None) -> Answer:
    """Return what a whole reply held.

    Raises:
        BadAnswerError: it carries an error, is not of the protocol, or nothing was generated.
    """
    parsed = parse_json(reply.body)
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise BadAnswerError("invalid_body", "there is no choice in it")
    choice = choices[0]
    if choice.get("finish_reason") in _BROKEN_OFF:
        raise BadAnswerError("error_in_body", f"finish_reason is {choice['finish_reason']}")
    try:
        if chat:
            reasoning, output = _chat_text({"delta": choice.get("message")})
        else:
            reasoning, output = _completion_text(choice)
        text = reasoning + output
    except (TypeError, AttributeError) as error:
        raise BadAnswerError(
            "invalid_body", f"the choice is not of the protocol: {error}"
        ) from None
    if not text:
        raise BadAnswerError("empty_answer", "nothing was generated")
    told = tokens_of(parsed.get("usage"), text, count)
    return Answer(items=1, **told, text=output)


def tokens_of(usage: Any, text: str, count: Count | None) -> dict[str, Any]:
    """Return the fields of an Answer that tell tokens: of usage, else as ``count`` finds them."""
    told = usage if isinstance(usage, dict) else {}
    found: dict[str, Any] = {"input_tokens": _whole_number(told.get("prompt_tokens"))}
    output = _whole_number(told.get("completion_tokens"))
    if output is not None:
        return {**found, "output_tokens": output, "tokens_from": "usage"}
    if count is not None and text:
        return {**found, "output_tokens": count(text), "tokens_from": "tokenizer"}
    return found


def _whole_number(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= _MOST_TOKENS else None
