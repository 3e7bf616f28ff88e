"""What a language model is asked in its proof: plain text, conversations and random tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from modelops.errors import InputError
from modelops_exporters.sentences import SENTENCES
from modelops_exporters.text.runtime import STEPS

Conversation = tuple[dict[str, str], ...]

_PLAIN = (
    "Hello",
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "1, 1, 2, 3, 5, 8, 13, 21,",
    "Es war einmal ein König, der hatte drei Töchter. 東京は",
    " ".join(SENTENCES),
)


def _asks(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


_CHATS: tuple[Conversation, ...] = (
    (_asks("What is the capital of France?"),),
    (
        {"role": "system", "content": "Answer in one word."},
        _asks("Is the sky blue?"),
        {"role": "assistant", "content": "Yes."},
        _asks("And grass?"),
    ),
    (_asks("Summarise this:\n\n" + "\n".join(SENTENCES[:10])),),
)
# Where tokenizers part: digits after spaces, runs of spaces and newlines, contractions, scripts,
# emoji of several code points, what looks like a special token, control characters.
CORPUS = (
    *SENTENCES,
    *_PLAIN[:5],
    "x =  12 +   345;\t# 6,789.0e-10",
    "  two spaces before, two after  ",
    "\n\n\nnewlines\r\n\r\n\ttabs\t\t",
    "I'm sure they've said it'll work; DON'T",
    "naïve café — “quoted” … ﬁne Å Å",
    "👩‍👩‍👧‍👦 🇫🇷 ✈️ 🤖",
    "हिन्दी العربية עברית ไทย 한국어",
    "<s> </s> <|endoftext|> <|im_start|> [INST] <unk>",
    "a\u200bb\u00a0c\u0007d",
    "0123456789" * 4,
    "",
)


@dataclass(frozen=True)
class Prompt:
    """One prompt; ``text`` is None where it is made of random tokens."""

    label: Literal["plain", "chat", "random"]
    ids: npt.NDArray[np.int64]
    text: str | None


def render(tokenizer: Any, conversation: Conversation) -> str:
    """Return a conversation as the model's chat template writes it, the answer's turn begun.

    Raises:
        InputError: the template cannot be read, or refuses this conversation.
    """
    import jinja2

    try:
        found: str = tokenizer.apply_chat_template(
            list(conversation), add_generation_prompt=True, tokenize=False
        )
    except (jinja2.TemplateError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"the chat template does not work: {str(error).splitlines()[0][:200]}",
            hint="mend chat_template.jinja (or chat_template in tokenizer_config.json)",
        ) from error
    return found


def conversations(tokenizer: Any) -> tuple[list[Conversation], list[str]]:
    """Return those that the template takes, and what is worth saying.

    Raises:
        InputError: the template does not even take one question.
    """
    if tokenizer.chat_template is None:
        return [], ["no chat template: chat completions need one given by the caller"]
    render(tokenizer, _CHATS[0])
    taken, notes = [_CHATS[0]], []
    for conversation in _CHATS[1:]:
        try:
            render(tokenizer, conversation)
        except InputError as error:
            roles = ", ".join(turn["role"] for turn in conversation)
            notes.append(f"the chat template refuses a conversation of {roles}: {error.message}")
        else:
            taken.append(conversation)
    return taken, notes


def prompts(
    tokenizer: Any, chats: Sequence[Conversation], *, longest: int, vocabulary: int, seed: int
) -> list[Prompt]:
    """Return the prompts of a proof, each cut so that its continuation fits ``longest`` tokens."""
    room = max(1, longest - STEPS)
    made: list[Prompt] = []

    def add(label: Literal["plain", "chat"], text: str) -> None:
        # A template has written the special tokens already.
        ids = tokenizer(text, add_special_tokens=label == "plain")["input_ids"][:room]
        if ids:
            made.append(Prompt(label, np.array(ids, np.int64), text))

    for text in _PLAIN:
        add("plain", text)
    for conversation in chats:
        add("chat", render(tokenizer, conversation))
    rng = np.random.default_rng(seed)
    lengths = (min(length, room) for length in (1, 7, 33))
    made += [Prompt("random", rng.integers(0, vocabulary, n), None) for n in lengths]
    return made
