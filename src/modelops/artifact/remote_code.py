"""Keys of JSON documents by which Hugging Face loaders import and run code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_ASKS_FOR_CODE = ("auto_map", "trust_remote_code", "custom_pipelines", "custom_generate")


def requests_for_code(value: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield where, at any depth, a document asks for code, by which key, and what it asks for."""
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, dict):
            for key, child in item.items():
                at = f"{where}.{key}".lstrip(".")
                if key in _ASKS_FOR_CODE and child:
                    yield at, key, child
                pending.append((at, child))
        elif isinstance(item, list):
            pending += [(f"{where}[{i}]", child) for i, child in enumerate(item)]
