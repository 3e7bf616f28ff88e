"""What packed weights mean, by ggml's own definition: a second opinion on the gguf package's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def unpack(kind: str, data: Bytes, nbytes: int) -> Floats:
    """Return the values of whole blocks of type ``kind``, each of ``nbytes`` bytes, in order."""
    return _UNPACK[kind](data.reshape(-1, nbytes)).reshape(-1)


def _float32(blocks: Bytes) -> Floats:
    return blocks.view("<f4").astype(np.float32)


def _float16(blocks: Bytes) -> Floats:
    return blocks.view("<f2").astype(np.float32)


def _bfloat16(blocks: Bytes) -> Floats:
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _half(blocks: Bytes, at: int) -> Floats:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _nibble(packed: Bytes, *, high: bool) -> Bytes:
    found: Bytes = packed >> np.uint8(4) if high else packed & np.uint8(0x0F)
    return found


def _nibbles(packed: Bytes) -> Bytes:
    """Return the low halves of all bytes, then the high ones."""
    return np.concatenate([_nibble(packed, high=False), _nibble(packed, high=True)], axis=1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """Return bit ``i`` of the four bytes, worth 16, for value ``i``."""
    bits: Bytes = np.unpackbits(packed, axis=1, bitorder="little")
    return bits << np.uint8(4)


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    values = (_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])).astype(np.float32)
    return _half(blocks, 0) * (values - 16)


def _q5_1(blocks: Bytes) -> Floats:
    values = (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])).astype(np.float32)
    return _half(blocks, 0) * values + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _scale_and_min(packed: Bytes, index: int) -> tuple[Floats, Floats]:
    """Return the 6-bit scale and minimum ``index`` (of 8) that 12 bytes hold."""
    if index < 4:
        scale, least = packed[:, index] & 63, packed[:, index + 4] & 63
    else:
        scale = (packed[:, index + 4] & 0x0F) | (packed[:, index - 4] >> 6 << 4)
        least = (packed[:, index + 4] >> 4) | (packed[:, index] >> 6 << 4)
    return scale.astype(np.float32)[:, None], least.astype(np.float32)[:, None]


def _k_blocks(blocks: Bytes, values: Callable[[int], Bytes]) -> Floats:
    """Return eight groups of 32, each by its own scale and minimum."""
    out = np.empty((len(blocks), 256), np.float32)
    largest, least = _half(blocks, 0), _half(blocks, 2)
    for group in range(8):
        scale, minimum = _scale_and_min(blocks[:, 4:16], group)
        found = values(group).astype(np.float32)
        out[:, 32 * group : 32 * group + 32] = largest * scale * found - least * minimum
    return out


def _q4_k(blocks: Bytes) -> Floats:
    def values(group: int) -> Bytes:
        packed = blocks[:, 16 + 32 * (group // 2) :][:, :32]
        return _nibble(packed, high=bool(group % 2))

    return _k_blocks(blocks, values)


def _q5_k(blocks: Bytes) -> Floats:
    def values(group: int) -> Bytes:
        packed = blocks[:, 48 + 32 * (group // 2) :][:, :32]
        fifth: Bytes = blocks[:, 16:48] >> np.uint8(group) & np.uint8(1)
        return _nibble(packed, high=bool(group % 2)) | fifth << np.uint8(4)

    return _k_blocks(blocks, values)


def _q6_k(blocks: Bytes) -> Floats:
    out = np.empty((len(blocks), 256), np.float32)
    largest = _half(blocks, 208)
    scales = blocks[:, 192:208].view(np.int8).astype(np.float32)
    for group in range(8):
        half, part = divmod(group, 4)
        low = blocks[:, 64 * half + 32 * (part % 2) :][:, :32]
        low = _nibble(low, high=part >= 2)
        high: Bytes = blocks[:, 128 + 32 * half :][:, :32] >> np.uint8(2 * part) & np.uint8(3)
        found = (low | high << np.uint8(4)).astype(np.float32) - 32
        each = np.repeat(scales[:, 2 * group : 2 * group + 2], 16, axis=1)
        out[:, 32 * group : 32 * group + 32] = largest * each * found
    return out


_UNPACK: dict[str, Callable[[Bytes], npt.NDArray[Any]]] = {
    "F32": _float32,
    "F16": _float16,
    "BF16": _bfloat16,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
KNOWN = tuple(_UNPACK)
"""The types that can be read, by name."""
