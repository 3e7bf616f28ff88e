"""Tensors of byte strings as bytes: each a little-endian u32 length and that many bytes.

Where there are half a million of them each of these takes a tenth of a second of pure Python, which
lets other threads in; none is one long call into C, which would not.
"""

from __future__ import annotations

import itertools
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

LENGTH_BYTES = 4
"""Bytes before each string."""

_LENGTH = struct.Struct("<I")
_STEP = 4096


def pack(array: npt.NDArray[Any]) -> bytes:
    """Return the strings of ``array``, row-major."""
    flat = array.ravel()
    parts = []
    for at in range(0, flat.size, _STEP):
        items = list(map(bytes, flat[at : at + _STEP].tolist()))
        pairs = ((_LENGTH.pack(len(item)), item) for item in items)
        parts.append(b"".join(itertools.chain.from_iterable(pairs)))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check(blob: memoryview, count: int) -> None:
    """Look whether ``blob`` holds exactly ``count`` strings, without making them.

    Raises:
        ValueError: it does not hold them, or holds more; the message says which.
    """
    length_at, at = _LENGTH.unpack_from, 0
    try:
        for _ in range(count):
            at += LENGTH_BYTES + length_at(blob, at)[0]
    except struct.error as error:
        raise _wrong(blob, at, count) from error
    if at != len(blob):
        raise _wrong(blob, at, count)


def unpack(blob: memoryview, count: int) -> npt.NDArray[Any]:
    """Return exactly ``count`` strings as a flat object array.

    Raises:
        ValueError: ``blob`` does not hold them, or holds more; the message says which.
    """
    length_at, at = _LENGTH.unpack_from, 0
    if count * LENGTH_BYTES > len(blob):
        raise _wrong(blob, len(blob), count)
    strings = np.empty(count, dtype=object)
    try:
        for first in range(0, count, _STEP):
            items = []
            for _ in range(min(_STEP, count - first)):
                start = at + LENGTH_BYTES
                at = start + length_at(blob, at)[0]
                items.append(blob[start:at].tobytes())
            strings[first : first + _STEP] = items
    except struct.error as error:
        raise _wrong(blob, at, count) from error
    if at != len(blob):
        raise _wrong(blob, at, count)
    return strings


def _wrong(blob: memoryview, at: int, count: int) -> ValueError:
    if at > len(blob) or 0 < len(blob) - at < LENGTH_BYTES:
        return ValueError("a string reaches beyond its binary data")
    return ValueError(f"its binary data does not hold {count} strings exactly")
