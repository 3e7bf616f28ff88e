"""Folders in which every rank wrote a safetensors file, with its parts' offsets in the header."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from modelops.checkpoint import safetensors_file
from modelops.checkpoint.dcp.index import Index, Part, ShardedTensor
from modelops.checkpoint.paths import inside, open_regular
from modelops.checkpoint.standins import ITEMSIZE
from modelops.errors import CheckpointError, InputError

KEY = "DCP_SHARDING_INFO"


def parts_in(folder: Path) -> list[Path]:
    """Return the safetensors files of a folder that say they hold parts."""
    return [path for path in sorted(folder.glob("*.safetensors")) if _says_so(path)]


def _says_so(path: Path) -> bool:
    try:
        return KEY in safetensors_file.read_header(path)[1]
    except InputError:
        return False


def read_parts(folder: Path) -> Index:
    """Return the index that the headers of all files make together.

    The size of the whole stands nowhere: it is where the last part ends, and the parts must fill
    it.

    Raises:
        CheckpointError: a header is damaged, or two disagree.
    """
    found: dict[str, tuple[str, list[Part]]] = {}
    for path in parts_in(folder):
        inside(folder, path.name)
        with open_regular(path) as file:
            entries, metadata = safetensors_file.check_header(file, path)
            file.seek(0)
            data = 8 + int.from_bytes(file.read(8), "little")
        told = _offsets(metadata[KEY], path)
        for name, entry in entries.items():
            dtype = safetensors_file.dtype_name(entry.dtype)
            if dtype not in ITEMSIZE:
                raise CheckpointError(f"{path}: {name!r} is {dtype}, which cannot be joined")
            if name not in told:
                raise CheckpointError(f"{path} does not say where its part of {name!r} belongs")
            part = Part(
                told[name], entry.shape, path, data + entry.begin, entry.end - entry.begin, False
            )
            kind, parts = found.setdefault(name, (dtype, []))
            if kind != dtype:
                raise CheckpointError(f"{path}: {name!r} is {dtype} here, {kind} in another file")
            parts.append(part)
    return Index({n: _whole(n, dtype, parts) for n, (dtype, parts) in found.items()})


def _offsets(text: str, path: Path) -> dict[str, tuple[int, ...]]:
    try:
        value: Any = json.loads(text)
        return {str(name): tuple(map(int, told["saved_offsets"])) for name, told in value.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: its {KEY} cannot be read") from error


def _whole(name: str, dtype: str, parts: list[Part]) -> ShardedTensor:
    rank = len(parts[0].sizes)
    if any(len(p.offsets) != rank or len(p.sizes) != rank for p in parts):
        raise CheckpointError(f"{parts[0].file}: the parts of {name!r} have unlike ranks")
    shape = tuple(max(p.offsets[d] + p.sizes[d] for p in parts) for d in range(rank))
    return ShardedTensor(name, dtype, shape, tuple(parts))
