"""Shared memory that an engine leaves when it is killed: its folder says which."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

SUFFIX = ".tmp"
"""Of the folder for an engine's temporary files, beside its socket."""

_RECORD = "shared_memory"
# What Python's multiprocessing makes; nothing else is touched, whatever a record says.
_NAME = re.compile(r"psm_[0-9a-f]{1,32}|sem\.mp-[a-z0-9_]{1,32}")
_SHARED = Path("/dev/shm")  # noqa: S108 - where the kernel has it


def record(folder: Path, names: Iterable[str]) -> None:
    """Write down what the engine of ``folder`` has mapped."""
    with contextlib.suppress(OSError):
        temporary = folder / f".{_RECORD}"
        temporary.write_text("\n".join(sorted(names)))
        temporary.replace(folder / _RECORD)


def remove(folder: Path) -> None:
    """Remove an engine's folder, and the shared memory that its record names.

    Only where the engine is gone, or about to be killed: what it has mapped, it keeps.
    """
    with contextlib.suppress(OSError):
        for name in (folder / _RECORD).read_text().splitlines():
            path = _SHARED / name
            with contextlib.suppress(OSError):
                if _NAME.fullmatch(name) and path.lstat().st_uid == os.getuid():
                    path.unlink()
    shutil.rmtree(folder, ignore_errors=True)


def sweep(runtime: Path) -> None:
    """Remove all engines' folders in ``runtime``, whose processes are gone."""
    for folder in runtime.glob(f"*{SUFFIX}"):
        if folder.is_dir() and not folder.is_symlink():
            remove(folder)
