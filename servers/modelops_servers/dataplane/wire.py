"""Frames on the unix socket between a front and an engine host.

A frame is a head and, for each tensor of the signature in order, a record with its shape and
either its bytes or where they lie in the sender's arena. Both ends are of one version and know the
signature, so neither names nor dtypes travel. Every length is a multiple of 16: what is read from
an aligned buffer is aligned.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from modelops.dtypes import numpy_dtype
from modelops.errors import EngineError, ModelopsError
from modelops.signature import TensorSpec
from modelops_servers.dataplane import strings
from modelops_servers.dataplane.arena import Arena
from modelops_servers.dataplane.failure import heard, told
from modelops_servers.dataplane.packed_strings import PackedStrings, packed

Array = npt.NDArray[Any]

BY_ARENA_BYTES = 64 * 1024
"""Tensors of at least this many bytes go through the arena."""

_HEAD = struct.Struct("<IBBHQdd")  # length, kind, -, count, id, two numbers by kind
_RECORD = struct.Struct("<BBHIQQ")  # rank, place, -, -, bytes, offset
_INLINE, _ARENA = 0, 1
_ALIGNMENT = 16
_PADDING = [bytes(n) for n in range(_ALIGNMENT)]
HEAD_BYTES = _HEAD.size
_NO_TIME = float("inf")


class Kind(IntEnum):
    """What a frame is."""

    REQUEST = 1
    """``first`` and ``second``: deadline and start_by on the monotonic clock, or infinity."""
    CANCEL = 2
    FREE = 3
    """The reader is done with the arena's offset ``id``."""
    RESULT = 4
    """``first``: seconds waited. ``second``: rows of the call, told once for each call, else 0."""
    ERROR = 5


@dataclass(slots=True)
class Frame:
    """One frame as read; ``payload`` is a view that lives as long as the buffer it came from."""

    kind: int
    id: int
    count: int
    first: float
    second: float
    payload: memoryview


class Tensors:
    """Writes and reads the tensors of one side of a signature."""

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = [(t.name, numpy_dtype(t.dtype), t.dtype == "string") for t in specs]

    def write(
        self,
        kind: Kind,
        id: int,
        tensors: Mapping[str, Array],
        arena: Arena,
        taken: list[int],
        first: float | None = None,
        second: float | None = None,
    ) -> bytes:
        """Return a frame; the offsets that it took from ``arena`` are appended to ``taken``.

        Raises:
            EngineError: a tensor has another dtype than the signature, and would be misread.
        """
        before = len(taken)
        try:
            parts, size = self._parts(tensors, arena, taken)
        except BaseException:
            for offset in taken[before:]:
                arena.free(offset)
            del taken[before:]
            raise
        parts[0] = _HEAD.pack(
            size,
            kind,
            0,
            len(self._specs),
            id,
            _NO_TIME if first is None else first,
            _NO_TIME if second is None else second,
        )
        return b"".join(parts)

    def _parts(
        self, tensors: Mapping[str, Array], arena: Arena, taken: list[int]
    ) -> tuple[list[Any], int]:
        """Return the parts of a frame, the first of them left for the head, and their size."""
        parts: list[Any] = [b""]
        size = HEAD_BYTES
        for name, dtype, is_string in self._specs:
            array = tensors[name]
            if array.dtype != dtype:
                raise EngineError(f"{name!r} is {array.dtype} where the signature has {dtype}")
            shape = array.shape
            blob = packed(array) if is_string else None
            count = array.nbytes if blob is None else len(blob)
            offset = None
            if count >= BY_ARENA_BYTES:
                offset = _placed(array, blob, count, arena, taken)
            place = _INLINE if offset is None else _ARENA
            record = _RECORD.pack(len(shape), place, 0, 0, count, offset or 0)
            record += _dims(len(shape)).pack(*shape)
            record += _PADDING[-len(record) % _ALIGNMENT]
            parts.append(record)
            size += len(record)
            if offset is None:
                parts.append(array.tobytes() if blob is None else blob)
                parts.append(_PADDING[-count % _ALIGNMENT])
                size += count + -count % _ALIGNMENT
        return parts, size

    def read(self, frame: Frame, arena: Arena) -> tuple[dict[str, Array], bool]:
        """Return the tensors of a frame, and whether any of them lies in the sender's ``arena``.

        They are views: over the frame, or over the arena. Strings of a result stay packed: a front
        only passes them on.

        Raises:
            EngineError: the frame is not whole: its sender is of another version.
        """
        tensors: dict[str, Array] = {}
        payload, at, shared = frame.payload, 0, False
        try:
            for name, dtype, is_string in self._specs:
                rank, place, _, _, count, offset = _RECORD.unpack_from(payload, at)
                shape = _dims(rank).unpack_from(payload, at + _RECORD.size)
                at += _RECORD.size + 8 * rank
                at += -at % _ALIGNMENT
                raw: Any
                if place == _ARENA:
                    shared = True
                    raw = arena.view(offset, count)
                else:
                    raw = payload[at : at + count]
                    at += count + -count % _ALIGNMENT
                if is_string and frame.kind == Kind.RESULT:
                    tensors[name] = PackedStrings.of(memoryview(raw), shape)
                    continue
                if is_string:
                    flat = strings.unpack(memoryview(raw), math.prod(shape))
                elif count:
                    flat = np.frombuffer(raw, dtype)
                else:
                    flat = np.empty(0, dtype)
                tensors[name] = flat.reshape(shape)
        except (struct.error, ValueError, OverflowError, MemoryError) as error:
            raise EngineError(
                f"a frame between front and engine host is damaged: {error}"
            ) from error
        return tensors, shared


@functools.cache
def _dims(rank: int) -> struct.Struct:
    return struct.Struct(f"<{rank}Q")


def _placed(
    array: Array, blob: bytes | memoryview | None, count: int, arena: Arena, taken: list[int]
) -> int | None:
    """Put a tensor into the arena, unless it lies there already; None where there is no room."""
    if blob is not None:
        array = np.frombuffer(blob, np.uint8)
    if array.flags.c_contiguous:
        there = arena.offset_of(array)
        if there is not None:
            return there
    offset = arena.allocate(count)
    if offset is None:
        return None
    taken.append(offset)
    np.copyto(arena.view(offset, count).view(array.dtype).reshape(array.shape), array)
    return offset


def short(kind: Kind, id: int) -> bytes:
    """Return a frame without tensors."""
    return _HEAD.pack(HEAD_BYTES, kind, 0, 0, id, 0.0, 0.0)


def failure(id: int, error: ModelopsError, waited: float) -> bytes:
    """Return a frame that carries an error of the tree."""
    body = orjson.dumps(told(error))
    body += b" " * (-len(body) % _ALIGNMENT)
    return _HEAD.pack(HEAD_BYTES + len(body), Kind.ERROR, 0, 0, id, waited, 0.0) + body


def error_of(frame: Frame) -> ModelopsError:
    """Return the error that ``failure`` wrote."""
    return heard(orjson.loads(frame.payload))


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Return the frames that are whole with ``data``; their payloads are views."""
        buffer: Any = data
        if self._rest:
            self._rest += data
            if len(self._rest) < HEAD_BYTES or len(self._rest) < _length(self._rest, 0):
                return []
            buffer, self._rest = self._rest, bytearray()
        view = memoryview(buffer)
        frames: list[Frame] = []
        at, end = 0, len(view)
        while end - at >= HEAD_BYTES:
            length, kind, _, count, id, first, second = _HEAD.unpack_from(view, at)
            if length < HEAD_BYTES:
                raise EngineError("a frame between front and engine host is damaged")
            if end - at < length:
                break
            payload = view[at + HEAD_BYTES : at + length]
            frames.append(Frame(kind, id, count, first, second, payload))
            at += length
        if at < end:
            self._rest = bytearray(view[at:])
        return frames


def _length(buffer: bytearray, at: int) -> int:
    length: int = _HEAD.unpack_from(buffer, at)[0]
    return length


def when(value: float) -> float | None:
    """Return a time of a REQUEST frame, None for none."""
    return None if value == _NO_TIME else value
