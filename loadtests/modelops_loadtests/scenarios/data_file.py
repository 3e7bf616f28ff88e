"""A user's own file of what to send: texts, one a line, or JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson

from modelops.errors import InputError

Item = TypeVar("Item")


def read_items(
    path: Path,
    of_text: Callable[[str], Item],
    of_json: Callable[[Path, int, Any], Item],
    what: str,
) -> tuple[Item, ...]:
    """Return an item of each line that is not empty: of a ``.jsonl``, of its value.

    ``of_json`` is given the path and the line's number too, for what it refuses; ``what`` is the
    items' name.

    Raises:
        InputError: the file cannot be read, a line is no JSON, or there is no item.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    numbered = [(n, line) for n, line in enumerate(lines, 1) if line.strip()]
    if path.suffix == ".jsonl":
        items = tuple(of_json(path, n, _parsed(path, n, line)) for n, line in numbered)
    else:
        items = tuple(of_text(line) for _, line in numbered)
    if not items:
        raise InputError(f"{path} holds no {what}")
    return items


def _parsed(path: Path, number: int, line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}, line {number}: no JSON: {error}") from None
