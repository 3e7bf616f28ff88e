"""Tensors of byte strings as bytes: each a little-endian u32 length and that many bytes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt


def pack(array: npt.NDArray[Any]) -> bytes:
    """Return the strings of ``array``, row-major."""
    items = [bytes(item) for item in array.ravel()]
    return b"".join(itertools.chain.from_iterable((len(i).to_bytes(4, "little"), i) for i in items))


def unpack(blob: memoryview, count: int) -> npt.NDArray[Any]:
    """Return exactly ``count`` strings as a flat object array.

    Raises:
        ValueError: ``blob`` does not hold them, or holds more; the message says which.
    """
    items: list[bytes] = []
    offset = 0
    while offset < len(blob) and len(items) < count:
        end = offset + 4 + int.from_bytes(blob[offset : offset + 4], "little")
        if offset + 4 > len(blob) or end > len(blob):
            raise ValueError("a string reaches beyond its binary data")
        items.append(bytes(blob[offset + 4 : end]))
        offset = end
    if len(items) != count or offset != len(blob):
        raise ValueError(f"its binary data does not hold {count} strings exactly")
    strings = np.empty(count, dtype=object)
    strings[:] = items
    return strings
