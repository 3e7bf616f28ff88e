"""Reads the pieces of weights, memory-mapped, straight from where torch.save put them."""

from __future__ import annotations

import mmap
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from modelops.checkpoint.deepspeed.join import Joined, Piece
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.standins import ITEMSIZE, TensorStub
from modelops.checkpoint.zip_layout import Archive, read_archive, read_entry
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_LOCAL_HEADER = 30


def read(weights: Mapping[str, Joined]) -> dict[str, Tensor]:
    """Return the weights by name, whole; names that share a weight share its tensor.

    A weight that lies whole in one file stays there, memory-mapped; the others are copied
    together, one after the other.

    Raises:
        CheckpointError: a file is no longer what it was when it was checked.
    """
    import torch

    files: dict[Path, _Storages] = {}
    done: dict[int, Tensor] = {}

    def held(piece: Piece) -> Tensor:
        if piece.path not in files:
            files[piece.path] = _Storages(piece.path)
        return files[piece.path].tensor(piece.stub)

    for weight in weights.values():
        if id(weight) in done:
            continue
        dtype = getattr(torch, weight.dtype)
        if len(weight.pieces) == 1:
            value = held(weight.pieces[0]).reshape(weight.shape).to(dtype)
        else:
            value = torch.empty(weight.shape, dtype=dtype)
            flat, begin = value.view(-1), 0
            for piece in weight.pieces:
                part = held(piece)
                flat[begin : begin + part.numel()] = part
                begin += part.numel()
        done[id(weight)] = value
    return {name: done[id(weight)] for name, weight in weights.items()}


class _Storages:
    """The storages of one torch file, mapped: pages that nobody reads are never in memory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_regular(path) as file:
            self._archive: Archive = read_archive(file, path)
            order = f"{self._archive.prefix}/byteorder"
            if order in self._archive.sizes and read_entry(file, path, order, 16) != b"little":
                raise CheckpointError(f"{path} was written on a big-endian machine")
            with zipfile.ZipFile(file) as archive:
                self._headers = {e.orig_filename: e.header_offset for e in archive.infolist()}
            # A copy on write: torch knows no tensors that must not be written.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, stub: TensorStub) -> Tensor:
        """Return a tensor over the file's own bytes."""
        import torch

        dtype = getattr(torch, stub.dtype)
        if 0 in stub.shape:
            return torch.empty(stub.shape, dtype=dtype)
        count = stub.storage_numel()
        begin = self._begin(stub.storage.key, count * ITEMSIZE[stub.dtype])
        whole = torch.frombuffer(self._bytes, dtype=dtype, count=count, offset=begin)
        return whole.as_strided(stub.shape, stub.stride, stub.offset)

    def _begin(self, key: str, length: int) -> int:
        name = f"{self._archive.prefix}/data/{key}"
        header = self._headers.get(name)
        if header is None or self._archive.sizes[name] < length:
            raise CheckpointError(f"{self._path} changed since it was checked: {name}")
        head = self._bytes[header : header + _LOCAL_HEADER]
        label = int.from_bytes(head[26:28], "little")
        begin = header + _LOCAL_HEADER + label + int.from_bytes(head[28:30], "little")
        spelled = self._bytes[header + _LOCAL_HEADER : header + _LOCAL_HEADER + label]
        if head[:4] != b"PK\x03\x04" or spelled != name.encode():
            raise CheckpointError(f"{self._path} is a damaged archive: {name}")
        if begin + length > len(self._bytes):
            raise CheckpointError(f"{self._path} is truncated: {name}")
        return begin
