"""Puts the parts of tensors together, each read straight to its place."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterable
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.checkpoint.dcp.index import Part, ShardedTensor
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.pickle_machine import PickleContents, walk
from modelops.checkpoint.standins import ITEMSIZE, TensorStub
from modelops.checkpoint.torch_file import fault_of
from modelops.checkpoint.zip_layout import Archive, read_archive, read_entry
from modelops.errors import CheckpointError, InputError

if TYPE_CHECKING:
    from torch import Tensor

_MAX_PICKLE = 1 << 20
_LOCAL_HEADER = 30


def read(tensors: Iterable[ShardedTensor]) -> dict[str, Tensor]:
    """Return the whole tensors by name; no more than them, and one part, is in memory.

    Raises:
        CheckpointError: a part is not the tensor that the index says.
        UnsafeInputError: a part asks for more than plain values.
    """
    with ExitStack() as stack:
        files: dict[Path, BufferedReader] = {}

        def opened(path: Path) -> BufferedReader:
            if path not in files:
                files[path] = stack.enter_context(open_regular(path))
            return files[path]

        return {tensor.name: _read(tensor, opened) for tensor in tensors}


def _read(tensor: ShardedTensor, opened: Any) -> Tensor:
    import torch

    whole = torch.empty(tensor.shape, dtype=getattr(torch, tensor.dtype))
    for part in tensor.parts:
        file = opened(part.file)
        stub, begin = _place(tensor, part, file)
        if not math.prod(part.sizes):
            continue
        box = tuple(
            slice(low, low + size) for low, size in zip(part.offsets, part.sizes, strict=True)
        )
        target = whole[box] if box else whole
        plain = stub is None or _is_plain(stub)
        if plain and target.is_contiguous():
            _fill(file, begin, target)
            continue
        if stub is None or plain:
            held = torch.empty(part.sizes, dtype=whole.dtype)
            _fill(file, begin, held)
        else:
            held = torch.empty(stub.storage_numel(), dtype=whole.dtype)
            _fill(file, begin, held)
            held = held.as_strided(stub.shape, stub.stride, stub.offset)
        target.copy_(held)
    return whole


def follow_object(part: Part) -> PickleContents | None:
    """Follow the pickle of a value that is no tensor; None where it is none that can be read."""
    with open_regular(part.file) as file:
        try:
            item, archive = _archive(part, file)
            data = read_entry(item, part.file, f"{archive.prefix}/data.pkl", _MAX_PICKLE)
        except InputError:
            return None
    return walk(io.BytesIO(data))


def _is_plain(stub: TensorStub) -> bool:
    step, strides = 1, []
    for size in reversed(stub.shape):
        strides.append(step)
        step *= max(size, 1)
    return stub.offset == 0 and stub.stride == tuple(reversed(strides))


def _fill(file: BufferedReader, begin: int, target: Tensor) -> None:
    import torch

    if not target.numel():
        return
    view = memoryview(target.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(view):
        count = os.preadv(file.fileno(), [view[done : done + (1 << 30)]], begin + done)
        if not count:
            raise CheckpointError(f"{file.name} ends within a tensor")
        done += count


def _place(
    tensor: ShardedTensor, part: Part, file: BufferedReader
) -> tuple[TensorStub | None, int]:
    """Return how the values of a part are laid out, and where in the file they begin."""
    if not part.saved:
        return None, part.begin
    where = f"{part.file}: the part of {tensor.name!r} at {list(part.offsets)}"
    item, archive = _archive(part, file)
    if archive.kind != "torch":
        raise CheckpointError(f"{where} is no tensor of torch.save")
    root = f"{archive.prefix}/"
    contents = walk(io.BytesIO(read_entry(item, part.file, f"{root}data.pkl", _MAX_PICKLE)))
    if (fault := fault_of(contents, part.file)) is not None:
        raise fault
    stub = contents.root
    if not isinstance(stub, TensorStub) or not stub.fits():
        raise CheckpointError(f"{where} is no tensor")
    if (stub.dtype, stub.shape) != (tensor.dtype, part.sizes):
        raise CheckpointError(
            f"{where} is {stub.dtype}{list(stub.shape)}; the index says "
            f"{tensor.dtype}{list(part.sizes)}"
        )
    name = f"{root}data/{stub.storage.key}"
    if archive.sizes.get(name) != stub.storage_numel() * ITEMSIZE[stub.dtype]:
        raise CheckpointError(f"{where} does not have as many bytes as it says")
    return stub, part.begin + _data_offset(item, name, archive.sizes[name], where)


def _archive(part: Part, file: BufferedReader) -> tuple[Any, Archive]:
    item: Any = io.BufferedReader(_Slice(file.fileno(), part.begin, part.length))
    return item, read_archive(item, part.file)


def _data_offset(item: Any, name: str, size: int, where: str) -> int:
    """Return where a stored entry's bytes begin, by its local header."""
    item.seek(0)
    with zipfile.ZipFile(item) as archive:
        entry = archive.getinfo(name)
    item.seek(entry.header_offset)
    head = item.read(_LOCAL_HEADER)
    label = int.from_bytes(head[26:28], "little")
    extra = int.from_bytes(head[28:30], "little")
    begin = int(entry.header_offset) + _LOCAL_HEADER + label + extra
    if head[:4] != b"PK\x03\x04" or item.read(label) != name.encode():
        raise CheckpointError(f"{where} is a damaged archive")
    if begin + size > item.seek(0, 2):
        raise CheckpointError(f"{where} is truncated")
    return begin


class _Slice(io.RawIOBase):
    """A run of bytes of an open file, as a file of its own."""

    def __init__(self, descriptor: int, begin: int, length: int) -> None:
        self._descriptor, self._begin, self._length = descriptor, begin, length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = max(0, offset + (0, self._at, self._length)[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)[: max(0, self._length - self._at)]
        count = os.preadv(self._descriptor, [view], self._begin + self._at) if view else 0
        self._at += count
        return count
