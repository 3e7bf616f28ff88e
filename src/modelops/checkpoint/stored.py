"""Tensors as torch.save lays them into an archive, read without its pickle."""

from __future__ import annotations

import mmap
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.standins import ITEMSIZE, TensorStub
from modelops.checkpoint.zip_layout import Archive, read_archive, read_entry
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_LOCAL_HEADER = 30
_MAX_DEPTH = 6


def restore(path: Path, root: Any) -> Any:
    """Return what a scan found, its tensors real wherever a state dict may be.

    Raises:
        CheckpointError: the file is not what was scanned.
    """
    stored = StoredTensors(path)

    def real(value: Any, depth: int) -> Any:
        if isinstance(value, TensorStub):
            return stored.tensor(value)
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            return {key: real(inner, depth + 1) for key, inner in value.items()}
        return value

    return real(root, 0)


class StoredTensors:
    """The data of one archive of torch's, mapped: pages that nobody reads are never in memory.

    Raises:
        UnsafeInputError: the archive can be read in two ways.
        CheckpointError: it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_regular(path) as file:
            self._archive: Archive = read_archive(file, path)
            order = f"{self._archive.prefix}/byteorder"
            if order in self._archive.sizes and read_entry(file, path, order, 16) != b"little":
                raise CheckpointError(f"{path} was written on a big-endian machine")
            with zipfile.ZipFile(file) as archive:
                self._headers = {
                    entry.orig_filename: entry.header_offset
                    for entry in archive.infolist()
                    if entry.compress_type == zipfile.ZIP_STORED
                }
            # A copy on write: torch knows no tensors that must not be written.
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, stub: TensorStub, entry: str | None = None) -> Tensor:
        """Return a tensor over the file's own bytes, those of ``entry`` or of its storage's.

        Raises:
            CheckpointError: the entry is not there, or shorter than the tensor.
        """
        import torch

        dtype = getattr(torch, stub.dtype)
        if 0 in stub.shape:
            return torch.empty(stub.shape, dtype=dtype)
        if not stub.fits():
            raise CheckpointError(f"{self._path}: a tensor reaches past the end of its data")
        count = stub.storage_numel()
        name = f"{self._archive.prefix}/{entry or f'data/{stub.storage.key}'}"
        begin = self._begin(name, count * ITEMSIZE[stub.dtype])
        whole = torch.frombuffer(self._bytes, dtype=dtype, count=count, offset=begin)
        return whole.as_strided(stub.shape, stub.stride, stub.offset)

    def _begin(self, name: str, length: int) -> int:
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
