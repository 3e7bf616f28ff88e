"""Values from process to process over a socket; what is large travels beside the pickle, uncopied.

Both ends are this package's, and each trusts the other: pickle is code.
"""

from __future__ import annotations

import codecs
import dataclasses
import io
import pickle
import socket
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pickle import PickleBuffer
from typing import Any

import numpy as np

from modelops.errors import ModelopsError
from modelops_servers.dataplane.packed_strings import PackedStrings, opened, packed

_HEAD = struct.Struct("<QQ")  # bytes of the pickle, number of buffers
_STEP = 2**20
_LARGE = 64 * 1024
_LOOKED_INTO = 64


def send(sock: socket.socket, value: Any, *, open_strings: bool) -> None:
    """Send ``value``; nothing is sent where it cannot be pickled.

    Large ``bytes`` in it, at its top or in its lists, tuples and dataclasses, arrive as
    ``memoryview``. Tensors of strings arrive packed, unless ``open_strings``.
    """
    buffers: list[PickleBuffer] = []
    stream = io.BytesIO()
    _Pickler(stream, buffers, open_strings).dump(_lifted(value))
    raw = [buffer.raw() for buffer in buffers]
    sizes = struct.pack(f"<{len(raw)}Q", *(view.nbytes for view in raw))
    head = _HEAD.pack(stream.tell(), len(raw)) + sizes
    for part in (memoryview(head), stream.getbuffer(), *raw):
        for at in range(0, part.nbytes, _STEP):
            sock.sendall(part[at : at + _STEP])


def receive(sock: socket.socket) -> Any:
    """Return what ``send`` sent.

    Raises:
        EOFError: the other end is gone.
        OSError: the socket failed, or its timeout passed.
    """
    size, count = _HEAD.unpack(_exactly(sock, _HEAD.size))
    sizes = struct.unpack(f"<{count}Q", _exactly(sock, 8 * count))
    stream = _exactly(sock, size)
    buffers = [_exactly(sock, n) for n in sizes]
    return pickle.loads(stream, buffers=buffers)  # noqa: S301 - see the module's docstring


@dataclass(frozen=True)
class Failed:
    """An exception on its way: whatever its ``__init__`` asks for, it is the same afterwards."""

    kind: type[BaseException]
    args: tuple[Any, ...]
    state: dict[str, Any]
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failed:
        """Return ``error`` as it travels."""
        try:
            pickle.dumps((type(error), error.args, error.__dict__))
            kind, args, state = type(error), error.args, error.__dict__
        except Exception:  # noqa: BLE001 - whatever keeps it from travelling
            kind, args, state = RuntimeError, (f"{type(error).__name__}: {error}",), {}
        trace = "" if isinstance(error, ModelopsError) else traceback.format_exc()
        return cls(kind, args, dict(state), trace)

    def error(self) -> BaseException:
        """Return the exception; one that nobody foresaw carries where it came from as a note."""
        error = self.kind.__new__(self.kind, *self.args)
        error.__dict__.update(self.state)
        if self.trace:
            error.add_note(f"in another process:\n{self.trace}")
        return error


class _Pickler(pickle.Pickler):
    def __init__(self, stream: io.BytesIO, buffers: list[PickleBuffer], open_strings: bool) -> None:
        super().__init__(stream, protocol=5, buffer_callback=buffers.append)
        self._open_strings = open_strings

    def reducer_override(self, value: Any) -> Any:
        if type(value) is memoryview:
            return _same, (PickleBuffer(value) if value.c_contiguous else bytes(value),)
        if isinstance(value, np.ndarray) and value.dtype == object:
            arrive = _opened if self._open_strings else PackedStrings.of
            return arrive, (PickleBuffer(packed(value)), value.shape)
        return NotImplemented


class _Late:
    """Arrives as what ``function`` makes of ``arguments``, over there."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._reduced = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._reduced


def _lifted(value: Any) -> Any:
    """Return ``value`` with what is large in it as buffers, which pickle leaves where they are."""
    if isinstance(value, bytes):
        return PickleBuffer(value) if len(value) >= _LARGE else value
    if isinstance(value, str):
        return _Late(_text, PickleBuffer(_utf8(value))) if len(value) >= _LARGE else value
    if type(value) is list and len(value) > _LOOKED_INTO and set(map(type, value)) == {str}:
        encoded = [_utf8(text) for text in value]
        lengths = np.array([len(text) for text in encoded])
        return _Late(_texts, PickleBuffer(b"".join(encoded)), lengths)
    if type(value) in (list, tuple) and len(value) <= _LOOKED_INTO:
        return type(value)(map(_lifted, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        lifted = {name: _lifted(field) for name, field in fields.items()}
        if any(lifted[name] is not field for name, field in fields.items()):
            return dataclasses.replace(value, **lifted)
    return value


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# Unpickling is one call into C, in which no other thread runs but where it calls these: so they
# make what is large, piece by piece.


def _text(blob: memoryview) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("surrogatepass")
    steps = range(0, len(blob), _STEP // 4)
    return "".join([decoder.decode(blob[at : at + _STEP // 4]) for at in steps])


def _texts(blob: memoryview, lengths: Any) -> list[str]:
    texts, at = [], 0
    for length in lengths.tolist():
        texts.append(_text(blob[at : at + length]))
        at += length
    return texts


def _same(value: Any) -> Any:
    return value


def _opened(blob: Any, shape: tuple[int, ...]) -> Any:
    return opened(PackedStrings.of(memoryview(blob), shape))


def _exactly(sock: socket.socket, count: int) -> memoryview:
    # Not a bytearray: that would be cleared first.
    view: memoryview = np.empty(count, np.uint8).data
    at = 0
    while at < count:
        got = sock.recv_into(view[at : at + _STEP])
        if not got:
            raise EOFError("the other process is gone")
        at += got
    return view
