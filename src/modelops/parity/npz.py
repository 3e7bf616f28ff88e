"""Reading ``.npz`` files that may mean harm: nothing unpickled, nothing larger than it says."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from modelops.errors import InputError, UnsafeInputError
from modelops.parity.inputs import Arrays


def read_npz(path: Path, *, most_bytes: int) -> Arrays:
    """Return the arrays of ``path`` by name.

    Raises:
        UnsafeInputError: it holds pickled objects.
        InputError: it is no such file, is damaged, or holds more than ``most_bytes``.
    """
    arrays: Arrays = {}
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if (total := sum(e.file_size for e in entries)) > most_bytes:
                raise InputError(
                    f"{path.name} unpacks to {total / 2**30:.1f} GiB, over the "
                    f"{most_bytes / 2**30:.1f} GiB that are read"
                )
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                if name == entry.filename or name in arrays:
                    raise InputError(f"{path.name}: {entry.filename!r} is no array of its own")
                _check_header(archive, entry, path.name)
                with archive.open(entry) as member:
                    arrays[name] = npy.read_array(member, allow_pickle=False)
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError) as error:
        raise InputError(f"{path.name} cannot be read as .npz: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # encrypted, or an odd compression
        raise InputError(f"{path.name} is no .npz as numpy writes it: {error}") from error
    return arrays


def _check_header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, where: str) -> None:
    """Refuse what would be unpickled, and a shape that the bytes do not fill."""
    with archive.open(entry) as member:
        version = npy.read_magic(member)
        readers: dict[tuple[int, int], Any] = {
            (1, 0): npy.read_array_header_1_0,
            (2, 0): npy.read_array_header_2_0,
        }
        if version not in readers:
            raise InputError(f"{where}: {entry.filename} is of version {version} of the format")
        shape, _, dtype = readers[version](member)
        held = entry.file_size - member.tell()
    if dtype.hasobject:
        raise UnsafeInputError(
            f"{where}: {entry.filename} holds pickled objects, which run code when they are read",
            hint="save numbers and fixed-width strings only",
        )
    count = 1
    for size in shape:
        count *= int(size)
    if count * dtype.itemsize != held:
        raise InputError(
            f"{where}: {entry.filename} says {list(shape)} of {np.dtype(dtype)}, and holds "
            f"{held} bytes"
        )
