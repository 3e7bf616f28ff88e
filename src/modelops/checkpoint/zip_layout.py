"""The zip container of a torch file: one layout, read the same way by everyone, or refused."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from modelops.errors import CheckpointError, UnsafeInputError

MAX_ENTRIES = 1_000_000
ZipKind = Literal["torch", "torchscript", "pt2", "npz", "other"]


@dataclass(frozen=True)
class Archive:
    """The entries of a zip by name → bytes, and what they make of it."""

    kind: ZipKind
    prefix: str
    sizes: dict[str, int]


def read_archive(file: BinaryIO, path: Path) -> Archive:
    """List a zip whose layout cannot be read in two ways.

    Raises:
        UnsafeInputError: an entry leads out of the archive, or one name stands twice.
        CheckpointError: the archive is damaged, encrypted or compressed.
    """
    size = file.seek(0, 2)
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, EOFError) as error:
        raise CheckpointError(
            f"{path} is a damaged or truncated archive: {error}",
            hint="fetch or save the file again",
        ) from error
    finally:
        file.seek(0)
    if len(entries) > MAX_ENTRIES:
        raise CheckpointError(f"{path} has {len(entries)} entries; {MAX_ENTRIES} are allowed")
    sizes: dict[str, int] = {}
    seen: set[str] = set()
    for entry in entries:
        _check_entry(entry, path)
        # torch finds entries without regard to case
        if entry.orig_filename.casefold() in seen:
            raise UnsafeInputError(
                f"{path} holds the entry {entry.orig_filename!r} twice: which one is meant depends "
                "on who reads it"
            )
        seen.add(entry.orig_filename.casefold())
        sizes[entry.orig_filename] = entry.file_size
    kind, prefix = _classify(list(sizes))
    if kind in ("torch", "other"):
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.compress_size != entry.file_size:
                raise CheckpointError(
                    f"{path}: the entry {entry.filename!r} is compressed, which torch.save never "
                    "does and which cannot be memory-mapped",
                    hint="load it where you trust it, and torch.save its state_dict() again",
                )
        if sum(sizes.values()) > size:
            raise CheckpointError(f"{path}: its entries overlap, or reach past its end")
    return Archive(kind, prefix, sizes)


def read_entry(file: BinaryIO, path: Path, name: str, limit: int) -> bytes:
    """Return one entry's bytes, no more than ``limit`` of them.

    Raises:
        CheckpointError: the entry is larger, or its checksum does not hold.
    """
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive, archive.open(name) as entry:
            data = entry.read(limit + 1)
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise CheckpointError(f"{path}: the entry {name!r} is damaged: {error}") from error
    finally:
        file.seek(0)
    if len(data) > limit:
        raise CheckpointError(f"{path}: the entry {name!r} is larger than {limit >> 20} MiB")
    return data


def _check_entry(entry: zipfile.ZipInfo, path: Path) -> None:
    name = entry.orig_filename
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or "\0" in name:
        raise UnsafeInputError(f"{path} holds the entry {name!r}, which leads out of the archive")
    if entry.flag_bits & 0x1:
        raise CheckpointError(f"{path}: the entry {name!r} is encrypted")


def _classify(names: list[str]) -> tuple[ZipKind, str]:
    roots = {name.split("/", 1)[0] for name in names}
    inner = {name.split("/", 1)[1] for name in names if "/" in name}
    root = roots.pop() if len(roots) == 1 else ""
    both = inner | set(names)
    if "constants.pkl" in both or any(n.startswith("code/") for n in both):
        return "torchscript", root
    pt2 = {"archive_format", "archive_version", "serialized_exported_program.json"}
    if pt2 & both or any(n.startswith(("models/", "data/aotinductor/")) for n in both):
        return "pt2", root
    if root and f"{root}/data.pkl" in names:
        return "torch", root
    if names and all(name.endswith(".npy") for name in names):
        return "npz", ""
    return "other", ""
