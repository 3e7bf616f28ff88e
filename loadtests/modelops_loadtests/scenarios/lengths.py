"""How long prompts and replies are to be, and where the prompts come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self, TypeGuard

from modelops.errors import InputError
from modelops_loadtests.scenarios.data_file import read_items
from modelops_loadtests.scenarios.generation import Count
from modelops_loadtests.scenarios.prompts import PromptMaker
from modelops_loadtests.scenarios.scenario import Get, Settings
from modelops_loadtests.scenarios.tokens import (
    LocalTokenizer,
    ServerTokenizer,
    Tokenizer,
    server_tokenizer,
)
from modelops_loadtests.spans import Span

DEFAULT_OUTPUT_TOKENS = 128
_DEFAULT_WORDS = Span(low=32, high=128)


Lengths = tuple[int | None, int | None]
"""Tokens of one prompt and of its reply, as a trace asks for them; None: as the settings say."""
FREE: Lengths = (None, None)


@dataclass(frozen=True)
class Prompt:
    """What one request says: a text or messages; and its tokens, where it was made to have them."""

    text: str
    messages: tuple[dict[str, Any], ...] = ()
    tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class PromptSource:
    """Gives prompts: of the user's file, else made to the lengths asked for."""

    settings: Settings
    read: tuple[Prompt, ...]
    maker: PromptMaker
    local: LocalTokenizer | None
    takes_ignore_eos: bool

    @classmethod
    def prepare(cls, settings: Settings, get: Get, *, chat: bool) -> Self:
        """Read the file and the tokenizer, or ask the server for its own.

        Raises:
            InputError: a file is not as it must be; lengths are asked for, and nothing counts
                the model's tokens.
        """
        local = LocalTokenizer(settings.tokenizer) if settings.tokenizer else None
        remote = server_tokenizer(get, settings.model)
        read = read_prompts(settings.data) if settings.data else ()
        counts: Tokenizer | None = local or remote
        if settings.input_tokens is None:
            # Nobody asked for an exact length: words are as good, and need no tokenizer.
            counts = None
        elif counts is None:
            raise InputError(
                "--input-tokens needs the model's tokenizer, and the server has no /tokenize",
                hint="give it with --tokenizer FOLDER or tokenizer.json",
            )
        template = _template(counts, remote, get, settings) if counts and chat else 0
        longest = round(settings.shared_prefix * (settings.input_tokens or _DEFAULT_WORDS).high)
        maker = PromptMaker.of(counts, seed=settings.seed, template=template, longest=longest)
        forced = settings.ignore_eos
        takes = remote is not None if forced is None else forced
        return cls(settings, read, maker, local, takes)

    @property
    def count_generated(self) -> Count | None:
        """What counts a reply's tokens where the server tells no usage."""
        return None if self.local is None else self.local.count_generated

    def next(self, rng: Random, asked: int | None = None) -> Prompt:
        """Return a prompt; of ``asked`` tokens, where that is said."""
        if self.read and asked is None:
            return rng.choice(self.read)
        settings = self.settings
        if asked is None:
            asked = (settings.input_tokens or _DEFAULT_WORDS).draw(rng)
        text = self.maker.make(asked, rng, settings.shared_prefix)
        tokens = max(asked, self.maker.overhead + 1) if self.maker.exact else None
        return Prompt(text, tokens=tokens)

    def output(self, prompt: Prompt, rng: Random, asked: int | None) -> tuple[int, bool]:
        """Return the most tokens of the reply, and whether it is made to have just as many."""
        settings = self.settings
        if asked is not None:
            return asked, self.takes_ignore_eos
        if settings.output_tokens is not None:
            return settings.output_tokens.draw(rng), self.takes_ignore_eos
        return prompt.output_tokens or DEFAULT_OUTPUT_TOKENS, bool(settings.ignore_eos)


def options_of(
    source: PromptSource, prompt: Prompt, rng: Random, asked: int | None
) -> tuple[dict[str, Any], int | None]:
    """Return what every request for a generation says, and the output tokens it must give."""
    settings = source.settings
    most, exactly = source.output(prompt, rng, asked)
    body: dict[str, Any] = {"model": settings.model, "max_tokens": most}
    if exactly:
        body["ignore_eos"] = True
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    return body, most if exactly else None


def _template(
    counts: Tokenizer, remote: ServerTokenizer | None, get: Get, settings: Settings
) -> int:
    """Return the tokens that a chat of one message has besides those of its text."""
    messages = [{"role": "user", "content": "time"}]
    text = counts.count("time")
    if remote is not None:
        try:
            return remote.count_chat(messages) - text
        except InputError:
            pass
    # A server without such a count tells it with the usage of one short reply.
    asked = {"model": settings.model, "messages": messages, "max_tokens": 1}
    status, told = get("/v1/chat/completions", asked)
    usage = told.get("usage") if status == 200 and isinstance(told, dict) else None
    total = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return total - text if isinstance(total, int) else 0


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Read prompts: a JSON object a line, with ``prompt``, ``text`` or ``messages``.

    ``max_tokens`` beside it is the most tokens of the reply. A line may also be a text alone; of
    a file that is no ``.jsonl``, each line is one.

    Raises:
        InputError: the file cannot be read, a line is not of this form, or there is no prompt.
    """
    return read_items(path, Prompt, _prompt_of, "prompt")


def _prompt_of(path: Path, number: int, value: Any) -> Prompt:
    known = value if isinstance(value, dict) else {"prompt": value}
    text = known.get("prompt", known.get("text"))
    messages = known.get("messages")
    most = known.get("max_tokens")
    if most is not None and (type(most) is not int or most < 1):
        raise InputError(f"{path}, line {number}: max_tokens is {most!r}, no number from 1 on")
    if _are_messages(messages):
        return Prompt("", tuple(messages), output_tokens=most)
    if isinstance(text, str) and text.strip():
        return Prompt(text, output_tokens=most)
    raise InputError(
        f"{path}, line {number}: no prompt there",
        hint='write each line as {"prompt": "…"} or {"messages": [{"role": "user", …}]}',
    )


def _are_messages(value: Any) -> TypeGuard[Sequence[dict[str, Any]]]:
    return (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and len(value) > 0
        and all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in value)
    )
