"""Opening files that others named: only regular ones, and only inside their folder."""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from modelops.errors import CheckpointError, UnsafeInputError


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; a pipe or device never blocks or answers.

    Raises:
        CheckpointError: it is not there, cannot be read, or is no regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(f"cannot open {path}: {reason}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path} is no regular file (a pipe, socket, device or folder)")
    return os.fdopen(descriptor, "rb")


def inside(folder: Path, relative: str) -> Path:
    """Return the file ``relative`` of ``folder``; it must exist and lie inside the folder.

    A snapshot of the hub's cache holds links into the ``blobs`` beside it: those are followed.

    Raises:
        UnsafeInputError: the name or a link leads out of the folder.
        CheckpointError: the file is not there, or is no regular file.
    """
    path = _inside(folder, relative)
    if not path.is_file():
        raise CheckpointError(f"{path} is no regular file (a pipe, socket, device or folder)")
    return path


def folder_inside(folder: Path, relative: str) -> Path:
    """Return the folder ``relative`` of ``folder``; otherwise as ``inside``."""
    path = _inside(folder, relative)
    if not path.is_dir():
        raise CheckpointError(f"{path} is no folder")
    return path


def _inside(folder: Path, relative: str) -> Path:
    parts = relative.replace("\\", "/").split("/")
    if relative.startswith(("/", "\\")) or ".." in parts or "\0" in relative or not relative:
        raise UnsafeInputError(f"{folder} names {relative!r}, which would lead out of the folder")
    path = folder / relative
    try:
        resolved = path.resolve(strict=True)
        root = folder.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise CheckpointError(f"{relative} is missing from {folder}") from error
    roots = [root, *_hub_blobs(root)]
    if not any(resolved.is_relative_to(allowed) for allowed in roots):
        raise UnsafeInputError(
            f"{path} is a link that leads out of its folder",
            hint="replace the link by the file itself, if you trust it",
        )
    return path


def _hub_blobs(folder: Path) -> list[Path]:
    """Return where links of a hub snapshot ``models--…/snapshots/<commit>`` may lead."""
    if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--"):
        return [folder.parent.parent / "blobs"]
    return []
