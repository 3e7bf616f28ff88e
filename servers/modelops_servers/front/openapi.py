"""The hot routes in the OpenAPI document, which the framework cannot see by itself."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from modelops_servers.front.gateway import EMBEDDINGS_ROUTE, INFER_ROUTE, VERSION_INFER_ROUTE


def add_hot_routes(app: FastAPI) -> None:
    """Make ``app``'s document list the routes that are served outside of it."""
    made = app.openapi

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = made()
            schema["paths"] |= {
                EMBEDDINGS_ROUTE: {"post": _EMBEDDINGS},
                INFER_ROUTE: {"post": _infer("model")},
                VERSION_INFER_ROUTE: {"post": _infer("model", "version")},
            }
            app.openapi_schema = schema
        return app.openapi_schema

    # FastAPI documents replacing this method as the way to extend the document.
    app.openapi = document  # type: ignore[method-assign]


def _json(schema: dict[str, Any], example: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema, "example": example}}


def _answers(example: dict[str, Any]) -> dict[str, Any]:
    said = {
        "400": "The request does not fit the model; the message names what is off",
        "401": "No valid API key",
        "404": "No such model",
        "413": "The body is over the limit",
        "502": "The engine failed",
        "503": "Not ready or overloaded; Retry-After says when to come back",
        "504": "The deadline passed",
    }
    good = {"description": "OK", "content": _json({"type": "object"}, example)}
    return {"200": good, **{status: {"description": text} for status, text in said.items()}}


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


def _infer(*path: str) -> dict[str, Any]:
    return {
        "tags": ["Open Inference Protocol"],
        "summary": "Infer: tensors in, tensors out",
        "description": "JSON, or JSON followed by binary tensors with "
        "Inference-Header-Content-Length set to the length of the JSON.",
        "operationId": "_".join(("infer", *path)),
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in path
        ],
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
