"""GGUF files: the header is checked here, in bounded memory, before a library sees the file."""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from modelops.checkpoint.paths import open_regular
from modelops.errors import CheckpointError

MAX_HEADER = 256 << 20
"""Bytes that metadata and tensor table may take; the largest vocabularies take 20 MiB."""
MAX_STRINGS = 4_000_000
MAX_KEYS = 65_536
MAX_TENSORS = 1_000_000

_MAX_NAME = 65_535
_MAX_ALIGNMENT = 1 << 16
_VERSIONS = (2, 3)
_MAGIC = b"GGUF"
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "<u1",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_BOOL, _STRING, _ARRAY = 7, 8, 9


@dataclass(frozen=True, slots=True)
class BlockType:
    """One type of ggml: ``weights`` values are stored together in ``nbytes`` bytes."""

    name: str
    weights: int
    nbytes: int


# Every type of the specification, by its number: sizes can be checked also of those that
# nothing here dequantises.
TYPES = {
    number: BlockType(name, weights, nbytes)
    for number, name, weights, nbytes in (
        (0, "F32", 1, 4),
        (1, "F16", 1, 2),
        (2, "Q4_0", 32, 18),
        (3, "Q4_1", 32, 20),
        (6, "Q5_0", 32, 22),
        (7, "Q5_1", 32, 24),
        (8, "Q8_0", 32, 34),
        (9, "Q8_1", 32, 40),
        (10, "Q2_K", 256, 84),
        (11, "Q3_K", 256, 110),
        (12, "Q4_K", 256, 144),
        (13, "Q5_K", 256, 176),
        (14, "Q6_K", 256, 210),
        (15, "Q8_K", 256, 292),
        (16, "IQ2_XXS", 256, 66),
        (17, "IQ2_XS", 256, 74),
        (18, "IQ3_XXS", 256, 98),
        (19, "IQ1_S", 256, 50),
        (20, "IQ4_NL", 32, 18),
        (21, "IQ3_S", 256, 110),
        (22, "IQ2_S", 256, 82),
        (23, "IQ4_XS", 256, 136),
        (24, "I8", 1, 1),
        (25, "I16", 1, 2),
        (26, "I32", 1, 4),
        (27, "I64", 1, 8),
        (28, "F64", 1, 8),
        (29, "IQ1_M", 256, 56),
        (30, "BF16", 1, 2),
        (34, "TQ1_0", 256, 54),
        (35, "TQ2_0", 256, 66),
        (39, "MXFP4", 32, 17),
    )
}


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor; ``shape`` as PyTorch has it (rows first), ``begin`` in bytes of the file."""

    name: str
    type: int
    shape: tuple[int, ...]
    begin: int
    nbytes: int

    @property
    def type_name(self) -> str:
        """The name of its type, such as ``Q4_1``."""
        return TYPES[self.type].name


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by key (arrays of numbers as numpy arrays), and the tensors in the file's order."""

    metadata: dict[str, Any]
    tensors: tuple[GgufTensor, ...]

    @property
    def architecture(self) -> str:
        """What ``general.architecture`` says; empty where it says nothing."""
        found = self.metadata.get("general.architecture")
        return found if isinstance(found, str) else ""


def read_header(path: Path) -> GgufHeader:
    """Read and check the header of a file.

    Raises:
        CheckpointError: counts, lengths, types, sizes or offsets are not right; names the place.
    """
    with open_regular(path) as file:
        return check_header(file, path)


def check_header(file: BinaryIO, path: Path) -> GgufHeader:
    """Do as ``read_header`` does, on an open file."""
    reader = _Reader(file, path)
    if reader.take(4) != _MAGIC:
        raise _damaged(path, "it does not begin with GGUF")
    version = reader.number(4)
    if version not in _VERSIONS:
        swapped = int.from_bytes(struct.pack("<I", version), "big")
        if swapped in _VERSIONS:
            raise CheckpointError(
                f"{path} is a big-endian GGUF file, which is not read",
                hint="convert the model again on a little-endian machine",
            )
        raise CheckpointError(f"{path} has GGUF version {version}; versions 2 and 3 are read")
    tensors, keys = reader.number(8), reader.number(8)
    if keys > MAX_KEYS or tensors > MAX_TENSORS:
        raise _damaged(
            path,
            f"it claims {keys} keys and {tensors} tensors; "
            f"{MAX_KEYS} and {MAX_TENSORS} are allowed",
        )
    metadata: dict[str, Any] = {}
    for _ in range(keys):
        key = reader.string("a key", _MAX_NAME)
        if key in metadata:
            raise _damaged(path, f"the key {key[:100]!r} stands twice in it")
        metadata[key] = reader.value(key)
    alignment = _alignment(metadata, path)
    table = [_declared(reader, path) for _ in range(tensors)]
    start = -(-reader.position // alignment) * alignment
    found = tuple(_placed(entry, start, alignment, path) for entry in table)
    _check_layout(path, found, start, reader.size, alignment)
    return GgufHeader(metadata, found)


class _Reader:
    """Takes what the file holds, never more than it has nor more than a header may take."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file = file
        self._path = path
        self._strings = 0
        self.size = os.fstat(file.fileno()).st_size
        self.position = 0
        file.seek(0)

    def take(self, count: int) -> bytes:
        if count > self.size - self.position:
            raise _damaged(
                self._path,
                f"its header wants {count} bytes at {self.position}, but the file has {self.size}: "
                "it is truncated, or lies",
            )
        if self.position + count > MAX_HEADER:
            raise _damaged(self._path, f"its header is larger than {MAX_HEADER} bytes")
        data = self._file.read(count)
        if len(data) != count:
            raise _damaged(self._path, "it became shorter while it was read")
        self.position += count
        return data

    def number(self, nbytes: int) -> int:
        return int.from_bytes(self.take(nbytes), "little")

    def string(self, what: str, limit: int) -> str:
        length = self.number(8)
        if length > limit:
            raise _damaged(self._path, f"{what} claims {length} bytes; {limit} are allowed")
        self._strings += 1
        if self._strings > MAX_STRINGS:
            raise _damaged(self._path, f"it holds more than {MAX_STRINGS} strings")
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError as error:
            raise _damaged(self._path, f"{what} is no UTF-8") from error

    def value(self, key: str) -> Any:
        kind = self.number(4)
        if kind == _STRING:
            return self.string(f"the value of {key!r}", MAX_HEADER)
        if kind == _ARRAY:
            return self._array(key)
        return self._scalars(key, kind, 1)[0].item()

    def _array(self, key: str) -> Any:
        kind, count = self.number(4), self.number(8)
        if kind == _STRING:
            # Each takes its length's 8 bytes at least: a lie is found before anything is made.
            if count * 8 > self.size - self.position or count > MAX_STRINGS:
                raise _damaged(self._path, f"{key!r} claims {count} strings, more than can be")
            return [self.string(f"a string of {key!r}", _MAX_NAME) for _ in range(count)]
        return self._scalars(key, kind, count)

    def _scalars(self, key: str, kind: int, count: int) -> Any:
        if kind == _ARRAY:
            raise _damaged(self._path, f"{key!r} holds arrays of arrays, which nothing here reads")
        if kind not in _SCALARS:
            raise _damaged(self._path, f"{key!r} has the unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind])
        found = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        return found.astype(bool) if kind == _BOOL else found


def _alignment(metadata: dict[str, Any], path: Path) -> int:
    found = metadata.get("general.alignment", 32)
    if not isinstance(found, int) or not 8 <= found <= _MAX_ALIGNMENT or found & (found - 1):
        raise _damaged(path, f"its alignment is {str(found)[:40]}, no power of two from 8 on")
    return found


def _declared(reader: _Reader, path: Path) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.string("the name of a tensor", _MAX_NAME)
    rank = reader.number(4)
    if not 1 <= rank <= 4:
        raise _bad(path, name, f"has {rank} dims; 1 to 4 are allowed")
    # The file counts dims from the innermost.
    shape = tuple(reader.number(8) for _ in range(rank))[::-1]
    kind, offset = reader.number(4), reader.number(8)
    return name, shape, kind, offset


def _placed(
    entry: tuple[str, tuple[int, ...], int, int], start: int, alignment: int, path: Path
) -> GgufTensor:
    name, shape, kind, offset = entry
    if kind not in TYPES:
        raise _bad(path, name, f"has the unknown type {kind}")
    block = TYPES[kind]
    if min(shape) < 1 or math.prod(shape) >= 1 << 62:
        raise _bad(path, name, f"has the shape {list(shape)}, which no tensor can have")
    if shape[-1] % block.weights:
        raise _bad(
            path,
            name,
            f"has rows of {shape[-1]}, no multiple of the {block.weights} of a block "
            f"of {block.name}",
        )
    if offset % alignment:
        raise _bad(path, name, f"begins at {offset}, which is not aligned to {alignment}")
    nbytes = math.prod(shape) // block.weights * block.nbytes
    return GgufTensor(name, kind, shape, start + offset, nbytes)


def _check_layout(
    path: Path, tensors: tuple[GgufTensor, ...], start: int, size: int, alignment: int
) -> None:
    """Tensors must fill the data without overlap, and with no hole but what alignment needs."""
    if not tensors:
        raise CheckpointError(f"{path} holds no tensors")
    seen: set[str] = set()
    at = start
    for tensor in sorted(tensors, key=lambda t: t.begin):
        if tensor.name in seen:
            raise _bad(path, tensor.name, "stands twice in it")
        seen.add(tensor.name)
        if tensor.begin < at:
            raise _bad(path, tensor.name, "overlaps the tensor before it")
        if tensor.begin - at >= alignment:
            raise _bad(path, tensor.name, f"follows a hole of {tensor.begin - at} bytes")
        at = tensor.begin + tensor.nbytes
        if at > size:
            raise _bad(
                path,
                tensor.name,
                f"ends at byte {at}, but the file has {size}: it is truncated",
            )
    if size - at >= alignment:
        raise _damaged(path, f"{size - at} bytes at its end belong to no tensor")


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path} is no whole GGUF file: {why}", hint="fetch or convert the file again"
    )


def _bad(path: Path, name: str, why: str) -> CheckpointError:
    return CheckpointError(
        f"{path}: tensor {name[:200]!r} {why}", hint="fetch or convert the file again"
    )
