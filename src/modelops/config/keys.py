"""API keys, from text and from a file; a key itself is never shown."""

from __future__ import annotations

import stat
from pathlib import Path

from pydantic import SecretStr, TypeAdapter, ValidationError

from modelops.config.file import read_text
from modelops.config.settings import ApiKey
from modelops.errors import InputError
from modelops.progress import Progress, silent

_MAX_BYTES = 1024 * 1024
# Whoever may write it can let himself in; a group that reads it is often meant to.
_TOO_OPEN = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP
_KEY: TypeAdapter[SecretStr] = TypeAdapter(ApiKey)


def parse_keys(keys: str | None) -> tuple[SecretStr, ...]:
    """Split the value of ``MODELOPS_API_KEYS``: keys separated by commas or spaces."""
    return tuple(SecretStr(k) for k in (keys or "").replace(",", " ").split())


def read_keys(path: Path, progress: Progress = silent) -> tuple[SecretStr, ...]:
    """Read one key a line; blank lines and lines that begin with # are skipped.

    A file that others can read or change is told through ``progress``.

    Raises:
        InputError: the file cannot be read, a line is no key, or there is no key in it.
    """
    keys = []
    for number, line in enumerate(read_text(path, "keys file", _MAX_BYTES).splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            keys.append(_KEY.validate_python(text))
        except ValidationError as error:
            what = error.errors()[0]["msg"].removeprefix("Value error, ")
            raise InputError(f"{path}, line {number}: {what}") from None
    if not keys:
        # An empty file would open the gateway to all: never what a keys file is for.
        raise InputError(f"the keys file {path} holds no key")
    if path.stat().st_mode & _TOO_OPEN:
        progress(f"warning: others on this machine can read or change {path}: chmod 600 {path}")
    return tuple(keys)
