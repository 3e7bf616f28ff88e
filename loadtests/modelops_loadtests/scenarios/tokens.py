"""Counting tokens as the model does: by its tokenizer, or by the server's ``/tokenize``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from modelops.errors import InputError, MissingEnvironmentError
from modelops_loadtests.scenarios.scenario import Get


class Tokenizer(Protocol):
    """Counts the tokens of a text, special ones as the model would see them included."""

    is_local: bool
    """Whether counting costs microseconds, and not a request."""

    def count(self, text: str) -> int:
        """Return how many tokens a prompt of this text has."""


class LocalTokenizer:
    """A ``tokenizer.json``."""

    is_local = True

    def __init__(self, path: Path) -> None:
        """Read it; ``path`` is the file, or a folder that has one.

        Raises:
            InputError: there is none, or it cannot be read.
            MissingEnvironmentError: the package tokenizers is not installed.
        """
        try:
            from tokenizers import Tokenizer as Reader
        except ImportError:
            raise MissingEnvironmentError(
                "tokenizers is not installed here", hint='pip install "modelops[loadtest]"'
            ) from None
        file = path / "tokenizer.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError(
                f"there is no {file}", hint="--tokenizer takes a tokenizer.json or its folder"
            )
        try:
            self._tokenizer: Any = Reader.from_file(str(file))
        except Exception as error:  # noqa: BLE001
            # tokenizers raises bare Exception, whatever is wrong with the file.
            raise InputError(f"cannot read the tokenizer {file}: {error}") from None
        # A file may carry the limits of what it was trained with.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str) -> int:
        """Return how many tokens a prompt of this text has."""
        return len(self._tokenizer.encode(text))

    def count_generated(self, text: str) -> int:
        """Return how many tokens a text has that a model wrote: none that only begin a prompt."""
        return len(self._tokenizer.encode(text, add_special_tokens=False))


class ServerTokenizer:
    """``POST /tokenize`` as vLLM has it."""

    is_local = False

    def __init__(self, get: Get, model: str) -> None:
        self._get, self._model = get, model

    def count(self, text: str) -> int:
        """Return how many tokens a prompt of this text has.

        Raises:
            InputError: the server does not tell.
        """
        return self._ask({"prompt": text})

    def count_chat(self, messages: list[dict[str, Any]]) -> int:
        """Return how many tokens a chat has, in the model's template.

        Raises:
            InputError: the server does not tell.
        """
        return self._ask({"messages": messages, "add_generation_prompt": True})

    def _ask(self, asked: dict[str, Any]) -> int:
        status, told = self._get("/tokenize", {"model": self._model, **asked})
        count = told.get("count") if status == 200 and isinstance(told, dict) else None
        if not isinstance(count, int):
            raise InputError(f"POST /tokenize answered {status}, and told no count")
        return count


def server_tokenizer(get: Get, model: str) -> ServerTokenizer | None:
    """Return the server's tokenizer, or None where it has none that tells counts."""
    tokenizer = ServerTokenizer(get, model)
    try:
        tokenizer.count("the")
    except InputError:
        return None
    return tokenizer
