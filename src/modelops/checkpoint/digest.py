"""SHA-256 over what a checkpoint computes from, wherever it lies and whatever it is called."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from modelops.checkpoint.paths import open_regular


def sha256_file(path: Path) -> str:
    """Return the hash of a file's bytes, in hexadecimal."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_files(files: Mapping[str, Path]) -> str:
    """Return one hash over several files and their names within the checkpoint."""
    whole = hashlib.sha256()
    for name, path in sorted(files.items()):
        whole.update(f"{sha256_file(path)}  {name}\n".encode())
    return whole.hexdigest()
