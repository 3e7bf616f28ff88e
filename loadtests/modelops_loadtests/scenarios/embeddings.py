"""Embeddings over the OpenAI protocol: sentences in, one finite vector each out."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Self

import numpy as np
import orjson

from modelops.errors import InputError
from modelops_loadtests.samples import Floats
from modelops_loadtests.scenarios.data_file import read_items
from modelops_loadtests.scenarios.scenario import (
    Answer,
    BadAnswerError,
    Get,
    Reply,
    Request,
    Settings,
    parse_json,
)
from modelops_loadtests.scenarios.sentences import SENTENCES

_HEADERS = {"Content-Type": "application/json", "Accept": "application/json"}


@dataclass(frozen=True)
class EmbeddingsScenario:
    """Sends ``batch`` texts a request, drawn from ``texts``.

    With ``encoding="binary"`` vectors are asked for in base64, as the openai client does.
    """

    settings: Settings
    texts: tuple[str, ...]

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:  # noqa: ARG003
        """Read the texts: those of ``settings.data``, else a built-in list of varied length.

        Raises:
            InputError: the file cannot be read, or holds no text.
        """
        return cls(settings, read_texts(settings.data) if settings.data else SENTENCES)

    def request(self, rng: Random) -> Request:
        """Return a request for ``batch`` texts."""
        body = {
            "model": self.settings.model,
            "input": [rng.choice(self.texts) for _ in range(self.settings.batch)],
            "encoding_format": "base64" if self.settings.encoding == "binary" else "float",
        }
        return Request(
            "/v1/embeddings", orjson.dumps(body), _HEADERS, self.settings.batch, "embeddings"
        )

    def check(self, request: Request, reply: Reply) -> Answer:
        """Check that every text has one vector, finite, not empty and of one size."""
        parsed = parse_json(reply.body)
        data = parsed.get("data")
        if not isinstance(data, list):
            raise BadAnswerError("invalid_body", "there is no list named data")
        if len(data) != request.items:
            raise BadAnswerError("wrong_count", f"{len(data)} vectors for {request.items} texts")
        if [_index(item) for item in data] != list(range(request.items)):
            raise BadAnswerError("wrong_count", "the vectors' indexes are not 0, 1, 2, …")
        sizes = {len(_vector(item)) for item in data}
        if len(sizes) > 1:
            raise BadAnswerError("invalid_body", f"vectors of different sizes: {sorted(sizes)}")
        return Answer(request.items, _tokens(parsed))


def _index(item: Any) -> Any:
    if not isinstance(item, dict):
        raise BadAnswerError("invalid_body", "an item of data is no object")
    return item.get("index")


def _vector(item: dict[str, Any]) -> Floats:
    raw = item.get("embedding")
    try:
        if isinstance(raw, str):
            vector = np.frombuffer(base64.b64decode(raw, validate=True), "<f4").astype(np.float64)
        elif isinstance(raw, list):
            # None, which is how JSON carries what is not finite, becomes NaN here.
            vector = np.array(raw, dtype=np.float64)
        else:
            raise BadAnswerError("invalid_body", "an embedding is neither a list nor base64")
    except (ValueError, TypeError, binascii.Error) as error:
        raise BadAnswerError("invalid_body", f"an embedding is not numbers: {error}") from None
    if vector.ndim != 1 or vector.size == 0:
        raise BadAnswerError("invalid_body", f"an embedding has the shape {list(vector.shape)}")
    if not np.isfinite(vector).all():
        raise BadAnswerError("not_finite", "an embedding has values that are not finite")
    return vector


def _tokens(parsed: dict[str, Any]) -> int | None:
    usage = parsed.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None


def read_texts(path: Path) -> tuple[str, ...]:
    """Read texts: of a ``.jsonl``, each line a string or an object with ``text`` or ``input``.

    Of any other file, each line that is not empty is a text.

    Raises:
        InputError: the file cannot be read, a line is not of this form, or there is no text.
    """
    return read_items(path, str, _text_of, "text")


def _text_of(path: Path, number: int, value: Any) -> str:
    if isinstance(value, dict):
        value = value.get("text", value.get("input"))
    if not isinstance(value, str) or not value.strip():
        raise InputError(
            f"{path}, line {number}: no text there",
            hint='write each line as "a text" or {"text": "a text"}',
        )
    return value
