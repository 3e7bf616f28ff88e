"""The format of a file, by its content alone: names lie."""

from __future__ import annotations

import os
from typing import BinaryIO, Literal

Kind = Literal["safetensors", "zip", "torch-legacy", "pickle", "gguf", "hdf5", "tar", "unknown"]

# The first object of every file of torch's format before 1.6, as pickled by protocol 2.
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
# Opcodes that pickles of protocol 0 and 1, which have no header, begin with.
_PICKLE_STARTS = frozenset(b"(}])cIJKMLFGUXVNS")


def sniff(file: BinaryIO) -> Kind:
    """Tell what an open file is; its position is left at the start."""
    size = os.fstat(file.fileno()).st_size
    file.seek(0)
    head = file.read(512)
    file.seek(0)
    length = int.from_bytes(head[:8], "little")
    if head[8:9] == b"{" and length <= size - 8:
        return "safetensors"  # whatever its header spells further on
    if head.startswith(b"PK\x03\x04"):
        return "zip"
    if head.startswith(b"GGUF"):
        return "gguf"
    if head.startswith(b"\x89HDF"):
        return "hdf5"
    if head.startswith(_LEGACY_MAGIC):
        return "torch-legacy"
    if head[257:262] == b"ustar":
        return "tar"
    if _is_pickle_2(head):
        return "pickle"
    if head[8:9] == b"{" or (size >= 8 and length == 0):
        return "safetensors"  # its header is damaged, and refused as such
    if head and head[0] in _PICKLE_STARTS:
        return "pickle"
    return "unknown"


def _is_pickle_2(head: bytes) -> bool:
    """Whether a PROTO opcode leads, followed by what cannot be a safetensors length."""
    return len(head) > 2 and head[0] == 0x80 and 2 <= head[1] <= 5 and any(head[2:8])
