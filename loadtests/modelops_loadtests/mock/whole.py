"""Replies that are no streams: texts, embeddings and tensors, each right or wrong as scripted."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import orjson

from modelops_loadtests.mock.asked import Asked, BadRequestError, read_json, texts_of
from modelops_loadtests.mock.events import usage_of, words
from modelops_loadtests.mock.script import Script

_VECTOR = (0.25, -0.5, 1.0)
_BINARY = "inference-header-content-length"


@dataclass(frozen=True)
class Whole:
    """A status, a body and headers beside those that every reply has."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)


def json_reply(status: int, content: Any) -> Whole:
    """Return a reply of JSON."""
    return Whole(status, orjson.dumps(content), {"content-type": "application/json"})


def error_reply(status: int, message: str) -> Whole:
    """Return a failure as OpenAI has it."""
    return json_reply(status, {"error": {"message": message, "type": "mock", "code": status}})


def failure(script: Script, fault: str) -> Whole | None:
    """Return the reply of a fault that any request can have; None where it is another."""
    if fault == "status":
        return error_reply(script.status, "overloaded")
    if fault == "redirect":
        return Whole(302, b"{}", {"location": "/v1/elsewhere"})
    if fault == "error-body":
        return json_reply(200, {"error": {"message": "it broke inside"}})
    if fault == "not-json":
        return Whole(200, b"<html>hello</html>")
    return None


def text(script: Script, asked: Asked, tokens: int, name: str) -> Whole:
    """Return a whole chat answer or completion."""
    why = "length" if tokens >= asked.tokens else "stop"
    choice: dict[str, Any] = {"index": 0, "finish_reason": why}
    if asked.chat:
        thinking = min(script.reasoning_tokens, tokens)
        message = {"role": "assistant", "content": words(thinking, tokens - thinking).lstrip()}
        if thinking:
            message["reasoning_content"] = words(0, thinking)
        choice["message"] = message
    else:
        choice["text"] = words(0, tokens)
    reply: dict[str, Any] = {
        "id": name,
        "object": "chat.completion" if asked.chat else "text_completion",
        "created": 1700000000,
        "model": asked.model,
        "choices": [choice],
    }
    if script.usage != "never":
        reply["usage"] = usage_of(asked, script, tokens)
    return json_reply(200, reply)


def embeddings(script: Script, fault: str, raw: bytes) -> Whole:
    """Return a vector for each text.

    Raises:
        BadRequestError: the request cannot be meant.
    """
    body = read_json(raw)
    texts = texts_of(body)
    vectors: list[Any] = [list(_VECTOR) for _ in texts]
    if fault in ("nan", "nan-bare", "null"):
        vectors[-1] = [0.25, None, 1.0]
    if fault == "empty-vector":
        vectors[-1] = []
    if fault == "wrong-count":
        vectors.append(vectors[0])
    reply: dict[str, Any] = {
        "object": "list",
        "model": body.get("model"),
        "data": [
            {"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(vectors)
        ],
    }
    if script.usage != "never":
        tokens = round(sum(len(t.split()) for t in texts) * script.input_usage_factor)
        reply["usage"] = {"prompt_tokens": tokens, "total_tokens": tokens}
    done = json_reply(200, reply)
    if fault in ("nan", "nan-bare"):
        return Whole(200, done.body.replace(b"null", b"NaN"), done.headers)
    return done


def metadata(model: str) -> dict[str, Any]:
    """Return a tensor model's metadata, as the Open Inference Protocol has it."""
    dims = {"batch": {"min": 1, "max": 8}, "sequence": {"min": 2, "max": 128}}
    return {
        "name": model,
        "versions": ["1"],
        "platform": "mock",
        "inputs": [
            {
                "name": "x",
                "datatype": "FP32",
                "shape": [-1, -1],
                "parameters": {"shape": ["batch", "sequence"]},
            },
            {"name": "attention_mask", "datatype": "INT64", "shape": [-1, 4]},
        ],
        "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        "parameters": {"dims": dims},
    }


def tensors(fault: str, headers: dict[str, str], raw: bytes) -> Whole:
    """Return one output of a row for each row of the first input, in the request's encoding.

    Raises:
        BadRequestError: the request cannot be meant.
    """
    try:
        length = int(headers.get(_BINARY, len(raw)))
        rows = int(read_json(raw[:length])["inputs"][0]["shape"][0])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise BadRequestError(f"the tensors cannot be read: {error!r}") from None
    values = [0.5] * (3 * rows)
    if fault in ("nan", "nan-bare"):
        values[0] = float("nan")
    output: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": [rows, 3]}
    if length == len(raw):
        return json_reply(200, {"outputs": [output | {"data": values}]})
    blob = struct.pack(f"<{len(values)}f", *values)
    output["parameters"] = {"binary_data_size": len(blob)}
    head = orjson.dumps({"outputs": [output]})
    return Whole(200, head + blob, {_BINARY: str(len(head))})
