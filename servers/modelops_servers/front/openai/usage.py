"""How many tokens a request was: as the engine says, wherever its protocol says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson


class Usage(NamedTuple):
    """Tokens read and written; None where the engine has not said."""

    prompt: int | None = None
    completion: int | None = None

    def newer(self, later: Usage) -> Usage:
        """Return what is known once ``later`` is: a protocol may tell in two parts."""
        return Usage(
            self.prompt if later.prompt is None else later.prompt,
            self.completion if later.completion is None else later.completion,
        )


def usage_in(value: Any) -> Usage:
    """Return the usage that a decoded answer or event holds, by OpenAI's names or Anthropic's."""
    if not isinstance(value, Mapping):
        return Usage()
    for holder in (value, value.get("response"), value.get("message")):
        found = holder.get("usage") if isinstance(holder, Mapping) else None
        if isinstance(found, Mapping):
            return Usage(
                _count(found, "prompt_tokens", "input_tokens"),
                _count(found, "completion_tokens", "output_tokens"),
            )
    return Usage()


def usage_of(body: bytes | memoryview) -> Usage:
    """Return the usage in a whole JSON answer; of anything else, nothing."""
    try:
        return usage_in(orjson.loads(body))
    except orjson.JSONDecodeError:
        return Usage()


def _count(found: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = found.get(name)
        if type(value) is int and value >= 0:
            return value
    return None
