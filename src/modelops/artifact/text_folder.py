"""Text artifacts: Hugging Face folders of data, and nothing in them that a loader would run."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

from modelops.artifact.integrity import read_plain
from modelops.artifact.manifest import Manifest
from modelops.artifact.remote_code import requests_for_code
from modelops.errors import UnsafeInputError

TEXT_FORMAT = "huggingface"
"""The format of an artifact that a text engine serves: a Hugging Face folder."""

_DATA = {".json", ".jinja", ".txt", ".model", ".safetensors", ".html"}
_MAX_JSON = 256 << 20


def is_text(manifest: Manifest) -> bool:
    """Whether an artifact is for a text engine: a Hugging Face folder, not one program."""
    return manifest.format == TEXT_FORMAT


def check_text(folder: Path, manifest: Manifest) -> None:
    """Refuse a text artifact that holds anything but data, whoever sealed its manifest.

    Raises:
        UnsafeInputError: a file is of a kind that loaders run, or a document asks for code.
    """
    for name in manifest.files:
        suffix = PurePosixPath(name).suffix
        if suffix not in _DATA:
            raise UnsafeInputError(f"{folder / name} is no data of a language model: not loaded")
        if suffix != ".json":
            continue
        try:
            value = json.loads(read_plain(folder / name, _MAX_JSON))
        except (ValueError, RecursionError) as error:
            raise UnsafeInputError(f"{folder / name} is no valid JSON") from error
        for where, _key, _asked in requests_for_code(value):
            raise UnsafeInputError(f"{folder / name} asks for code of its own to be run: {where}")
