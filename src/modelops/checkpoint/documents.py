"""JSON documents beside weights, and whether they ask for code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modelops.artifact.remote_code import requests_for_code
from modelops.checkpoint.paths import open_regular
from modelops.errors import CheckpointError, UnsafeInputError

MAX_BYTES = 256 << 20


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: it is none, or larger than 256 MiB.
    """
    value = read_any_json(path)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is no JSON object")
    return value


def read_any_json(path: Path) -> Any:
    """Read any JSON value; see ``read_json``."""
    with open_regular(path) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise CheckpointError(f"{path} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is no valid JSON: {str(error)[:200]}") from error


def refuse_code(path: Path, value: Any) -> None:
    """Refuse a document that asks, at any depth, for Python code to be imported.

    Raises:
        UnsafeInputError: it does; names the file, the key and what it asks for.
    """
    for where, key, asked in requests_for_code(value):
        raise UnsafeInputError(
            f"{path} asks for code of its own to be run: {where} is {_short(asked)} ({key}); a "
            "checkpoint's code is never run",
            hint="where you trust that code, import it yourself and pass the model with --model "
            "package.module:Factory",
        )


def refuse_foreign_modules(path: Path, value: Any) -> None:
    """Refuse a ``modules.json`` that names classes from outside sentence-transformers.

    Raises:
        UnsafeInputError: it does.
        CheckpointError: it is no list of modules.
    """
    if not isinstance(value, list) or not all(isinstance(m, dict) for m in value):
        raise CheckpointError(f"{path} is no list of modules")
    for module in value:
        kind = module.get("type")
        if not isinstance(kind, str) or not kind.startswith("sentence_transformers."):
            raise UnsafeInputError(
                f"{path} asks for code of its own to be run: a module of type {_short(kind)}",
                hint="pass the model yourself with --model package.module:Factory",
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:200] + "…"
