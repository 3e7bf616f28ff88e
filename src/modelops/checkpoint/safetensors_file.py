"""safetensors files: the header is checked here, in bounded memory, before the library sees it."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from modelops.checkpoint.paths import open_regular
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

MAX_HEADER = 100_000_000
"""Bytes; the format's own limit."""

_BITS = {
    "BOOL": 8,
    "U8": 8,
    "I8": 8,
    "U16": 16,
    "I16": 16,
    "U32": 32,
    "I32": 32,
    "U64": 64,
    "I64": 64,
    "F16": 16,
    "BF16": 16,
    "F32": 32,
    "F64": 64,
    "C64": 64,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}
_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "BF16": "bfloat16",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of the header; ``begin`` and ``end`` are bytes from the start of the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def dtype_name(dtype: str) -> str:
    """Return torch's name for a dtype of the format (``F32`` → ``float32``)."""
    kind = {"F": "float", "I": "int", "U": "uint"}
    match = re.fullmatch(r"([FIU])(\d+)", dtype)
    return _NAMES.get(dtype) or (kind[match[1]] + match[2] if match else dtype.lower())


def read_header(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """Read and check the header; return its tensors by name, and its metadata.

    Raises:
        CheckpointError: the header or the file's size is not right; names file and tensor.
    """
    with open_regular(path) as file:
        return check_header(file, path)


def check_header(file: BinaryIO, path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """Do as ``read_header`` does, on an open file."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    prefix = file.read(8)
    if len(prefix) < 8:
        raise _damaged(path, f"the file is only {size} bytes long")
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER:
        raise _damaged(path, f"its header claims {length} bytes; {MAX_HEADER} are allowed")
    if length > size - 8:
        raise _damaged(path, f"its header claims {length} bytes, but the file has {size}")
    try:
        parsed = json.loads(
            file.read(length).decode("utf-8"),
            object_pairs_hook=_no_duplicates,
            parse_constant=_no_constant,
        )
    except (ValueError, RecursionError) as error:
        reason = str(error).split("\n")[0][:200] or "too deeply nested"
        raise _damaged(path, f"its header is no valid JSON: {reason}") from error
    if not isinstance(parsed, dict):
        raise _damaged(path, "its header is no JSON object")
    metadata = parsed.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _damaged(path, "its __metadata__ does not map text to text")
    entries = [_entry(path, name, value) for name, value in parsed.items()]
    _check_layout(path, entries, size - 8 - length)
    return {entry.name: entry for entry in entries}, metadata


def load(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor by name, memory-mapped.

    Raises:
        CheckpointError: the file is damaged, or holds a dtype that this torch does not know.
    """
    import torch
    from safetensors import SafetensorError, safe_open

    with open_regular(path) as file:
        entries, _ = check_header(file, path)
        # Through the descriptor: what is loaded is the very file whose header was checked.
        try:
            with safe_open(
                f"/proc/self/fd/{file.fileno()}", framework="pt", device="cpu"
            ) as opened:
                for name in entries:
                    tensor = opened.get_tensor(name)
                    if not isinstance(tensor, torch.Tensor):
                        raise CheckpointError(f"{path}: tensor {name!r} cannot be read")
                    yield name, tensor
        except (SafetensorError, OSError, RuntimeError, AttributeError, KeyError) as error:
            raise CheckpointError(f"{path} cannot be read: {error}") from error


def _entry(path: Path, name: str, value: Any) -> Entry:
    if not _is_unicode(name):
        raise _bad(path, name, "has a name that is no Unicode")
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise _bad(path, name, "does not have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise _bad(path, name, f"has the unknown dtype {str(dtype)[:40]!r}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(map(_is_size, shape)):
        raise _bad(path, name, "has a shape that is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise _bad(path, name, "has data_offsets that are not two positions")
    begin, end = offsets
    bits = math.prod(shape) * _BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        raise _bad(
            path,
            name,
            f"takes {_short(end - begin)} bytes by its offsets, but {_short(bits // 8)} by its "
            f"shape {_short(shape)} and dtype {dtype}",
        )
    return Entry(name, dtype, tuple(shape), begin, end)


def _check_layout(path: Path, entries: list[Entry], available: int) -> None:
    """Tensors must fill the data from its start to its end, without overlap or hole."""
    at = 0
    for entry in sorted(entries, key=lambda e: (e.begin, e.end)):
        if entry.begin != at:
            kind = "overlaps the tensor before it" if entry.begin < at else "follows a hole"
            raise _bad(path, entry.name, f"{kind}: it begins at {entry.begin}, not at {at}")
        at = entry.end
        if at > available:
            raise _bad(
                path,
                entry.name,
                f"ends at byte {at} of the data, but the file holds {available}: it is truncated",
            )
    if at != available:
        raise _damaged(path, f"{available - at} bytes of it belong to no tensor")
    if not entries:
        raise CheckpointError(f"{path} holds no tensors")


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 62


def _is_unicode(name: str) -> bool:
    return name.isascii() or not any("\ud800" <= c <= "\udfff" for c in name)


def _short(value: int | list[int]) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:120] + "…"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:100]!r} stands twice in it")
        found[key] = value
    return found


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is no whole safetensors file: {why}", hint="fetch or save the file again"
    )


def _bad(path: Path, name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: tensor {name[:200]!r} {why}", hint="fetch or save the file again"
    )
