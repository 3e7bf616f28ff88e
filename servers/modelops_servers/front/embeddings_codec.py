"""Embeddings as OpenAI has them, as pure functions between bytes and values."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import orjson

from modelops_servers.front.json_object import body_error, json_object
from modelops_servers.front.status import FieldError

MAX_ITEMS = 2048
MAX_TOKENS = 300_000

EncodingFormat = Literal["float", "base64"]


@dataclass(frozen=True)
class EmbeddingRequest:
    """One parsed request; exactly one of ``texts`` and ``rows`` is there."""

    model: str
    texts: list[str] | None
    rows: list[list[int]] | None
    encoding_format: EncodingFormat
    dimensions: int | None


def parse(body: bytes | memoryview) -> EmbeddingRequest:
    """Read one request's JSON.

    Raises:
        FieldError: a field is missing or off; it is named.
    """
    data = json_object(body, body_error)
    model = data.get("model")
    if not isinstance(model, str):
        raise FieldError("you must name a model", param="model")
    encoding_format = data.get("encoding_format")
    if encoding_format not in (None, "float", "base64"):
        raise FieldError("encoding_format is 'float' or 'base64'", param="encoding_format")
    dimensions = data.get("dimensions")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise FieldError("dimensions is a whole number above 0", param="dimensions")
    texts, rows = _items(data.get("input"))
    return EmbeddingRequest(model, texts, rows, encoding_format or "float", dimensions)


def _items(value: Any) -> tuple[list[str] | None, list[list[int]] | None]:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise _bad_input("input is a string, a list of strings, token ids or lists of token ids")
    if not value:
        raise _bad_input("input is an empty list")
    if len(value) > MAX_TOKENS:
        raise _bad_input(f"input has {len(value)} entries; at most {MAX_TOKENS} tokens")
    kinds = set(map(type, value))
    if kinds == {int}:
        return None, [value]
    if len(value) > MAX_ITEMS:
        raise _bad_input(f"input has {len(value)} items; at most {MAX_ITEMS} in one request")
    if kinds == {str}:
        if "" in value:
            raise _bad_input(f"input[{value.index('')}] is an empty string")
        return value, None
    if kinds == {list}:
        if (count := sum(map(len, value))) > MAX_TOKENS:
            raise _bad_input(f"input has {count} tokens; at most {MAX_TOKENS} in one request")
        for index, row in enumerate(value):
            if not row:
                raise _bad_input(f"input[{index}] is an empty list")
            if set(map(type, row)) != {int}:
                raise _bad_input(f"input[{index}] holds something that is no token id")
        return None, value
    raise _bad_input("input mixes strings, token ids and other values")


def _bad_input(message: str) -> FieldError:
    return FieldError(message, param="input")


def encode(
    model: str, vectors: npt.NDArray[np.float32], encoding_format: EncodingFormat, tokens: int
) -> bytes:
    """Return the answer that holds ``vectors`` ([items, dimensions]) in order."""
    rows: Any = vectors
    if encoding_format == "base64":
        raw = vectors.astype("<f4", copy=False)
        rows = [base64.b64encode(row.tobytes()).decode() for row in raw]
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": row}
                for index, row in enumerate(rows)
            ],
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
