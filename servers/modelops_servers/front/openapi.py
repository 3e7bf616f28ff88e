"""The OpenAPI document: the hot routes, which the framework cannot see, and what all routes answer.

The framework's own guesses at parameters and answers are wrong here: no route takes a query, and
none answers 422.
"""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from modelops_servers.front.auth import OPEN_PATHS
from modelops_servers.front.gateway import EMBEDDINGS_ROUTE, INFER_ROUTE, VERSION_INFER_ROUTE
from modelops_servers.front.openai.routes import TEXT_ROUTES

_METRICS = "/metrics"
_REPOSITORY = "/v2/repository/"
_SAID = {
    "400": "The request does not fit the model; the message names what is off",
    "401": "No valid API key",
    "404": "No such model",
    "408": "The body did not arrive in time",
    "413": "The body is over the limit",
    "502": "The engine failed",
    "503": "Not ready or overloaded; Retry-After says when to come back",
    "504": "The deadline passed",
}
_LOADS = {"400": "The body asks for what is not offered", "502": "It cannot be loaded; why"}


def add_hot_routes(app: FastAPI) -> None:
    """Make ``app``'s document list the routes that are served outside of it, and be true."""
    made = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            # They describe nothing but the answers that are never given.
            schema.pop("components", None)
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    operation.pop("parameters", None)
                    operation |= _parameters(path)
                    operation["responses"] = _framework_answers(path)
            schema["paths"] |= {
                EMBEDDINGS_ROUTE: {"post": _EMBEDDINGS},
                INFER_ROUTE: {"post": _infer(INFER_ROUTE)},
                VERSION_INFER_ROUTE: {"post": _infer(VERSION_INFER_ROUTE)},
                **{path: {"post": _text(path)} for path in sorted(TEXT_ROUTES)},
            }
            app.openapi_schema = schema
        return app.openapi_schema

    # FastAPI documents replacing this method as the way to extend the document.
    app.openapi = document  # type: ignore[method-assign]


def operation_id(route: APIRoute) -> str:
    """Return the name under which generated clients call ``route``."""
    return f"{route.name}_of_version" if "{version}" in route.path else route.name


def _parameters(path: str) -> dict[str, Any]:
    named = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]
    return {"parameters": named} if named else {}


def _framework_answers(path: str) -> dict[str, Any]:
    if path == _METRICS:
        content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    else:
        kind = "array" if path == f"{_REPOSITORY}index" else "object"
        content = {"application/json": {"schema": {"type": kind}}}
    said = {"200": "OK"}
    if path not in OPEN_PATHS:
        said["401"] = _SAID["401"]
    if "{model}" in path:
        said["404"] = _SAID["404"]
    if path.startswith(_REPOSITORY):
        said |= _LOADS if path.endswith("/load") else {"400": _LOADS["400"]}
        said["413"] = _SAID["413"]
    elif path.endswith(("/ready", "/readyz")) or path.startswith("/v2/models/{model}"):
        said["503"] = "Not ready; the answer says why"
    answers: dict[str, Any] = {s: {"description": text} for s, text in sorted(said.items())}
    answers["200"]["content"] = content
    return answers


def _json(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": example}}


def _answers(example: dict[str, Any]) -> dict[str, Any]:
    good = {"description": "OK", "content": _json({"type": "object"}, example)}
    return {"200": good, **{status: {"description": text} for status, text in _SAID.items()}}


_EMBEDDINGS: dict[str, Any] = {
    "tags": ["OpenAI"],
    "summary": "Create embeddings",
    "operationId": "create_embeddings",
    "requestBody": {
        "required": True,
        "content": _json(
            {
                "type": "object",
                "required": ["model", "input"],
                "properties": {
                    "model": {"type": "string"},
                    "input": {
                        "description": "Text, texts, token ids, or lists of token ids",
                        "anyOf": [
                            {"type": "string"},
                            {"type": "array", "items": {"type": "string"}},
                            {"type": "array", "items": {"type": "integer"}},
                            {
                                "type": "array",
                                "items": {"type": "array", "items": {"type": "integer"}},
                            },
                        ],
                    },
                    "encoding_format": {"enum": ["float", "base64"], "default": "float"},
                    "dimensions": {"type": "integer", "description": "Only the model's own"},
                },
            },
            {"model": "minilm", "input": ["a sentence", "another one"]},
        ),
    },
    "responses": _answers(
        {
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.1, 0.2]}],
            "model": "minilm",
            "usage": {"prompt_tokens": 4, "total_tokens": 4},
        }
    ),
}


_CHAT = {
    "model": "chat",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 64,
}


def _text(path: str) -> dict[str, Any]:
    """What the gateway itself asks of a text route: the engine has the last word on the rest."""
    name = path.removeprefix("/v1/").strip("/").replace("/", "_")
    fields = {"model": {"type": "string"}, "stream": {"type": "boolean", "default": False}}
    schema = {"type": "object", "required": ["model"], "properties": fields}
    example = _CHAT if name == "chat_completions" else {"model": "chat"}
    answers: dict[str, Any] = {s: {"description": text} for s, text in _SAID.items()}
    content = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}
    return {
        "tags": ["OpenAI"],
        "summary": f"Passed to the model's engine: {path}",
        "operationId": f"create_{name}",
        "requestBody": {"required": True, "content": _json(schema, example)},
        "responses": {"200": {"description": "The engine's answer", "content": content}, **answers},
    }


def _infer(path: str) -> dict[str, Any]:
    return {
        "tags": ["Open Inference Protocol"],
        "summary": "Infer: tensors in, tensors out",
        "description": "JSON, or JSON followed by binary tensors with "
        "Inference-Header-Content-Length set to the length of the JSON.",
        "operationId": "infer_of_version" if "{version}" in path else "infer",
        **_parameters(path),
        "requestBody": {
            "required": True,
            "content": {
                **_json(
                    {
                        "type": "object",
                        "required": ["inputs"],
                        "properties": {
                            "id": {"type": "string"},
                            "inputs": {"type": "array", "items": {"type": "object"}},
                            "outputs": {"type": "array", "items": {"type": "object"}},
                            "parameters": {"type": "object"},
                        },
                    },
                    {
                        "inputs": [
                            {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [0.5, 1.5]}
                        ]
                    },
                ),
                "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
            },
        },
        "responses": _answers(
            {
                "model_name": "mlp",
                "model_version": "1",
                "outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [2.0]}],
            }
        ),
    }
