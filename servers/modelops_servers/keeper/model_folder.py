"""A model's folder is looked at before its engine reads it: whole, and nothing in it is code."""

from __future__ import annotations

import json
from pathlib import Path

from modelops.artifact import open_artifact
from modelops.artifact.remote_code import requests_for_code
from modelops.config import ModelConfig
from modelops.errors import InputError, UnsafeInputError
from modelops.resolving import find_source
from modelops_servers.keeper.vllm_command import options_of

_TRUST = "--trust-remote-code"
_MAX_BYTES = 64 * 2**20
_NO_DOCUMENTS = {"tokenizer.json", "vocab.json"}


def check_source(config: ModelConfig) -> None:
    """Check an artifact wholly; of a Hugging Face folder, whether its documents ask for code.

    Raises:
        InputError, VerificationError: it is not whole.
        UnsafeInputError: a document names code to be run, which ``engine_args`` do not allow.
    """
    assert config.source is not None  # noqa: S101 - the config sees to it
    folder, manifest = find_source(config.source)
    if manifest is not None:
        open_artifact(folder)
        return
    allowed = any(a.replace("_", "-") == _TRUST for a in options_of(config).engine_args)
    if not allowed:
        _check_documents(folder)


def _check_documents(folder: Path) -> None:
    for path in sorted(folder.glob("*.json")):
        if path.name in _NO_DOCUMENTS or path.name.endswith(".index.json"):
            continue
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise InputError(f"{path} is larger than a document of a model")
            value = json.loads(path.read_bytes())
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is no valid JSON") from error
        for where, _key, asked in requests_for_code(value):
            raise UnsafeInputError(
                f"{path} asks for code of its own to be run: {where} is {str(asked)[:200]!r}",
                hint=f"if you know that code: engine_args: [{_TRUST}]",
            )
