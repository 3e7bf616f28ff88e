"""What the gateway reads of an OpenAI request, and the little that it may change."""

from __future__ import annotations

import re
from dataclasses import dataclass

import orjson

from modelops_servers.front.json_object import body_error, json_object
from modelops_servers.front.openai.media import check_media
from modelops_servers.front.status import FieldError

MOST_CHOICES = 128
"""As many answers to one prompt as OpenAI gives; an engine sets aside memory for each."""

Bytes = bytes | memoryview

_BYTES_PER_TOKEN = 4

_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')
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
    model_at: tuple[int, int] | None
    """Where the model's name stands in the body, in quotes; None where that is not plain."""

    def tokens(self, size: int, context: int | None) -> int:
        """Return how many tokens prompt and answers may come to, to be on the safe side.

        A prompt is taken for a token in four of the body's ``size`` bytes, and never for more than
        the model's ``context``; an answer for as long as the client allows it, or else for what
        the prompt leaves of the context.
        """
        prompt = size // _BYTES_PER_TOKEN
        if context is not None:
            prompt = min(prompt, context)
        answer = self.max_tokens
        if answer is None:
            answer = 0 if context is None else context - prompt
        return prompt + self.choices * answer


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
    choices = 1
    for field in _CHOICES:
        value = data.get(field)
        if type(value) is int and value > MOST_CHOICES:
            raise FieldError(f"{field} is at most {MOST_CHOICES}", param=field)
        if type(value) is int:
            choices = max(choices, value)
    given = (data.get(field) for field in _LIMITS)
    most = next((value for value in given if type(value) is int), None)
    return TextRequest(model, data.get("stream") is True, choices, most, _place(body, model))


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


def _place(body: Bytes, model: str) -> tuple[int, int] | None:
    """Return where the one ``"model": …`` of the body has its value; quotes are escaped in text."""
    found = None
    for match in _MODEL.finditer(body):
        if found is not None:
            return None
        found = match
    # Whether it is a key of the whole, and not of a part, its value tells; or else it is not plain.
    if found is None or orjson.loads(found[1]) != model:
        return None
    return found.span(1)
