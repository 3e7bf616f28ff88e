"""What the gateway reads of an OpenAI request, and the little that it may change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import orjson

from modelops_servers.front.json_object import body_error, json_object
from modelops_servers.front.openai.media import check_media
from modelops_servers.front.status import FieldError

MOST_CHOICES = 128
"""As many answers to one prompt as OpenAI gives; an engine sets aside memory for each."""

Bytes = bytes | memoryview

_BYTES_PER_TOKEN = 4

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
# A letter of "model" as no encoder writes it: the key itself may be spelt so.
_SPELT = re.compile(rb"\\u006[cCdDfF45]")
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_CHOICES = ("n", "best_of")


@dataclass(frozen=True)
class TextRequest:
    """Those fields of a request that the gateway acts on; the engine judges all the others."""

    model: str
    streams: bool
    choices: int
    max_tokens: int | None
    """Most tokens of one answer, where the client has said."""
    prompts: int
    """How many there are at once."""
    prompt_tokens: int | None
    """Of all prompts together, where they are token ids already."""
    model_at: tuple[int, int] | None
    """Where the model's name stands in the body, in quotes; None where that is not plain."""

    def tokens(self, size: int, context: int | None) -> int:
        """Return how many tokens prompt and answers may come to, to be on the safe side.

        A prompt that is text is taken for a token in four of the body's ``size`` bytes, and never
        for more than the model's ``context``; an answer for as long as the client allows it, or
        else for what the prompt leaves of the context.
        """
        prompt = size // _BYTES_PER_TOKEN if self.prompt_tokens is None else self.prompt_tokens
        if context is not None:
            prompt = min(prompt, context * self.prompts)
        answer = self.max_tokens
        if answer is None:
            answer = 0 if context is None else max(0, context - prompt // self.prompts)
        return prompt + self.prompts * self.choices * answer


def read(body: Bytes) -> TextRequest:
    """Read one request's JSON.

    Raises:
        FieldError: it is no JSON object, names no model, or asks for what nobody may have.
    """
    data = json_object(body, body_error)
    model = data.get("model")
    if not isinstance(model, str):
        raise FieldError("you must name a model", param="model")
    check_media(data)
    choices = [_count(data, field) or 1 for field in _CHOICES]
    for field, asked in zip(_CHOICES, choices, strict=True):
        if asked > MOST_CHOICES:
            raise FieldError(f"{field} is at most {MOST_CHOICES}", param=field)
    # Which of them counts, depends on the route and the engine.
    limits = [value for field in _LIMITS if (value := _count(data, field)) is not None]
    prompts, prompt_tokens = _prompts(data.get("prompt"))
    return TextRequest(
        model=model,
        streams=_streams(data.get("stream")),
        choices=max(choices),
        max_tokens=max(limits, default=None),
        prompts=prompts,
        prompt_tokens=prompt_tokens,
        model_at=_place(body, model),
    )


def renamed(body: Bytes, request: TextRequest, name: str) -> Bytes:
    """Return ``body`` with ``name`` for its model; not another byte differs where that is plain."""
    if request.model_at is not None:
        begin, end = request.model_at
        return b"".join((body[:begin], orjson.dumps(name), body[end:]))
    return orjson.dumps({**json_object(body, body_error), "model": name})


def prompt_of(body: Bytes, name: str) -> int | bytes | None:
    """Return how many tokens a request's prompt has, or what to ask the engine's ``/tokenize``.

    None where neither can be: several prompts at once, or none in the two usual forms.
    """
    data = json_object(body, body_error)
    prompt = data.get("prompt")
    if isinstance(prompt, list):
        rows = prompt if prompt and isinstance(prompt[0], list) else [prompt]
        lists = [row for row in rows if isinstance(row, list)]
        if len(lists) < len(rows) or any(type(token) is not int for row in lists for token in row):
            return None
        return sum(map(len, lists))
    if not (isinstance(prompt, str) or isinstance(data.get("messages"), list)):
        return None
    return orjson.dumps({**{k: data[k] for k in _TOKENIZED if k in data}, "model": name})


# What vLLM's /tokenize takes into account.
_TOKENIZED = (
    "prompt", "messages", "tools", "add_special_tokens", "add_generation_prompt",
    "continue_final_message", "chat_template", "chat_template_kwargs", "mm_processor_kwargs",
)  # fmt: skip


def _streams(value: Any) -> bool:
    """Return whether a stream is asked for; an engine might read "yes" or 1 as true."""
    if value is None or type(value) is bool:
        return bool(value)
    raise FieldError("stream is true or false", param="stream")


def _count(data: dict[str, Any], field: str) -> int | None:
    """Return a field that counts something; an engine might read "128" or 128.0 as a number."""
    value = data.get(field)
    if value is None or (type(value) is int and value >= 0):
        return value
    raise FieldError(f"{field} is a whole number, and not negative", param=field)


def _prompts(prompt: Any) -> tuple[int, int | None]:
    """Return how many prompts there are, and their tokens where they are token ids."""
    if not isinstance(prompt, list) or not prompt:
        return 1, None
    if type(prompt[0]) is int:
        return 1, len(prompt)
    if isinstance(prompt[0], list):
        return len(prompt), sum(len(row) for row in prompt if isinstance(row, list))
    return len(prompt), None


def _place(body: Bytes, model: str) -> tuple[int, int] | None:
    """Return where the one ``"model": …`` of the body has its value; quotes are escaped in text."""
    found = None
    for match in _MODEL.finditer(body):
        if found is not None:
            return None
        found = match
    # Whether it is a key of the whole, and not of a part, its value tells; or else it is not plain.
    if found is None or orjson.loads(found[1]) != model or _SPELT.search(body):
        return None
    return found.span(1)
