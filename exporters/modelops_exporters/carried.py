"""The source's own files that an artifact carries, without what they say of the machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

# transformers records where a model was loaded from, which is often a path in somebody's home.
_WHERE = ("_name_or_path", "name_or_path", "tokenizer_file", "special_tokens_map_file")


def carried_files(files: Mapping[str, Path]) -> dict[str, Path | bytes]:
    """Return what to write for each carried file: itself, or JSON without absolute paths."""
    return {name: _clean(path) for name, path in files.items()}


def _clean(path: Path) -> Path | bytes:
    if path.suffix != ".json":
        return path
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return path
    if not isinstance(value, dict) or not any(_tells(value.get(key)) for key in _WHERE):
        return path
    kept = {k: v for k, v in value.items() if k not in _WHERE or not _tells(v)}
    return json_bytes(kept)


def json_bytes(value: Any) -> bytes:
    """Return a JSON document as it is written into an artifact."""
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def _tells(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    return (
        PurePosixPath(value).is_absolute()
        or PureWindowsPath(value).is_absolute()
        or value.startswith("~")
    )
