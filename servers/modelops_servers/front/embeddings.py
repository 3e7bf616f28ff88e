"""``/v1/embeddings`` as OpenAI has it: text or token ids in, vectors and real usage out."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import orjson

from modelops_servers.front.exchange import Call, Reply, Served
from modelops_servers.front.limits import read_body
from modelops_servers.front.status import JSON, FieldError
from modelops_servers.front.watch import ClientWatch
from modelops_servers.text import TextInputs

MAX_ITEMS = 2048
_TOKENIZED_ON_LOOP = 8192  # characters

EncodingFormat = Literal["float", "base64"]


@dataclass(frozen=True)
class EmbeddingRequest:
    """One parsed request; exactly one of ``texts`` and ``rows`` is there."""

    model: str
    texts: list[str] | None
    rows: list[list[int]] | None
    encoding_format: EncodingFormat
    dimensions: int | None


class EmbeddingsEndpoint:
    """Text to tokens, tokens through the model in like-length batches, vectors in order."""

    def __init__(self, served: Served) -> None:
        self._served = served

    async def __call__(self, call: Call) -> Reply:
        """Answer one embeddings request."""
        limits = self._served.limits
        body = await read_body(
            call.receive, call.headers, limits.max_json_bytes, limits.request_seconds
        )
        request = parse(body)
        model, loaded = self._served.loaded(request.model)
        call.model = model.name
        text = loaded.text
        if text is None:
            raise FieldError(
                f"model {model.name!r} makes no embeddings (its task is "
                f"{loaded.artifact.manifest.task}); use /v2/models/{model.name}/infer",
                param="model",
            )
        if request.dimensions is not None and request.dimensions != text.dimensions:
            raise FieldError(
                f"this model's embeddings have {text.dimensions} dimensions, "
                f"and it cannot give {request.dimensions}",
                param="dimensions",
            )
        async with ClientWatch(call.receive, call.deadline):
            rows = request.rows or await _tokens(text, request.texts or [])
            text.check(rows)
            vectors: list[Any] = [None] * len(rows)
            for batch in text.batches(rows):
                outputs = await model.infer(batch.tensors, call.deadline)
                values = np.ascontiguousarray(outputs[text.output.name], dtype=np.float32)
                for position, index in enumerate(batch.items):
                    vectors[index] = values[position]
        tokens = sum(len(row) for row in rows)
        self._served.metrics[model.name].tokens(tokens)
        return Reply([_encode(model.name, vectors, request.encoding_format, tokens)], [JSON])


def parse(body: bytes) -> EmbeddingRequest:
    """Read one request's JSON.

    Raises:
        FieldError: a field is missing or off; it is named.
    """
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FieldError(f"the body is not JSON: {error}", param="body") from error
    if not isinstance(data, dict):
        raise FieldError("the body is a JSON object", param="body")
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
        for index, row in enumerate(value):
            if not row:
                raise _bad_input(f"input[{index}] is an empty list")
            if set(map(type, row)) != {int}:
                raise _bad_input(f"input[{index}] holds something that is no token id")
        return None, value
    raise _bad_input("input mixes strings, token ids and other values")


def _bad_input(message: str) -> FieldError:
    return FieldError(message, param="input")


async def _tokens(text: TextInputs, texts: list[str]) -> list[list[int]]:
    if sum(map(len, texts)) <= _TOKENIZED_ON_LOOP:
        return text.tokenize(texts)
    return await asyncio.to_thread(text.tokenize, texts)


def _encode(model: str, vectors: list[Any], encoding_format: EncodingFormat, tokens: int) -> bytes:
    if encoding_format == "base64":
        vectors = [
            base64.b64encode(v.astype("<f4", copy=False).tobytes()).decode() for v in vectors
        ]
    return orjson.dumps(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(vectors)
            ],
            "model": model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
