"""The weights of a torch.export archive: listed as JSON, kept as bytes, and read as no more.

Loading the program itself runs code, so an archive is taken only where its digest is trusted; its
pickles (sample inputs, tensors of odd kinds) are not opened even then.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from modelops.artifact import MANIFEST, is_trusted, open_artifact
from modelops.checkpoint.constructors import MAX_DIMS
from modelops.checkpoint.digest import sha256_file
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.sniff import sniff
from modelops.checkpoint.standins import ITEMSIZE, StorageStub, TensorStub
from modelops.checkpoint.stored import StoredTensors
from modelops.checkpoint.zip_layout import Archive, read_archive, read_entry
from modelops.errors import CheckpointError, UnsafeInputError

if TYPE_CHECKING:
    from torch import Tensor

_MAX_JSON = 64 << 20
_FOLDER = "data/weights/"
_CONFIG = "_weights_config.json"
# The numbers of torch's schema of exported programs.
_DTYPES = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    9: "complex32",
    10: "complex64",
    11: "complex128",
    12: "bool",
    13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn",
    30: "float8_e5m2",
    31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz",
}


@dataclass(frozen=True)
class Pt2Weights:
    """The state dict of an archive: each tensor, and the entry that holds its bytes."""

    path: Path
    tensors: dict[str, tuple[TensorStub, str]]

    def read(self) -> dict[str, Tensor]:
        """Return the weights on the CPU, memory-mapped; names that share bytes share them still."""
        stored = StoredTensors(self.path)
        return {name: stored.tensor(stub, entry) for name, (stub, entry) in self.tensors.items()}


def is_pt2(path: Path) -> bool:
    """Whether a file is an archive of torch.export.

    Raises:
        InputError: it cannot be opened, or is a damaged archive.
    """
    with open_regular(path) as file:
        return sniff(file) == "zip" and read_archive(file, path).kind == "pt2"


def require_trust(path: Path) -> None:
    """Refuse an archive that nobody decided to trust, neither by itself nor in its artifact.

    Raises:
        UnsafeInputError: its digest is not in the trust store.
        IntegrityError: it lies in an artifact whose files are not those that were published.
    """
    digest = f"sha256:{sha256_file(path)}"
    if is_trusted(digest):
        return
    if (path.parent / MANIFEST).is_file():
        manifest = open_artifact(path.parent, require_trust=False).manifest
        if path.name in manifest.files and is_trusted(manifest.digest):
            return
    raise UnsafeInputError(
        f"{path} is a torch.export archive, which is executable code, and {digest} is not trusted "
        "here",
        hint=f"give the checkpoint that it was exported from; or, if you know where this file "
        f"comes from: modelops trust {path}",
    )


def read_weights(path: Path) -> Pt2Weights:
    """Read what an archive says of its state dict.

    Raises:
        UnsafeInputError: a tensor would have to be unpickled.
        CheckpointError: it is damaged, of before torch 2.8, or holds several programs.
    """
    with open_regular(path) as file:
        archive = read_archive(file, path)
        _refuse_pickle(file, path, archive)
        configs = [
            name
            for name in archive.sizes
            if name.startswith(f"{archive.prefix}/{_FOLDER}") and name.endswith(_CONFIG)
        ]
        if len(configs) != 1:
            raise CheckpointError(
                f"{path} lists the weights of {len(configs)} programs; one is needed",
                hint="export it again with torch 2.8 or newer, one program a file",
            )
        listed = _config(file, path, configs[0])
    return Pt2Weights(path, {n: _tensor(path, archive, n, entry) for n, entry in listed.items()})


def _config(file: BinaryIO, path: Path, name: str) -> dict[str, dict[str, Any]]:
    try:
        listed = json.loads(read_entry(file, path, name, _MAX_JSON))["config"]
        entries = {str(key): dict(value) for key, value in listed.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{path}: {name} is no list of weights") from error
    return entries


def _refuse_pickle(file: BinaryIO, path: Path, archive: Archive) -> None:
    """Refuse it whoever trusts it, and before a document of it is believed in anything else."""
    for name, size in archive.sizes.items():
        if not name.endswith(".json") or size > _MAX_JSON:
            continue
        if b'"use_pickle":true' in read_entry(file, path, name, _MAX_JSON).translate(
            None, b" \t\r\n"
        ):
            raise UnsafeInputError(
                f"{path} is a torch.export archive, which is executable code, and its content asks "
                f"for pickle ({name})",
                hint="give the checkpoint that it was exported from",
            )


def _tensor(
    path: Path, archive: Archive, name: str, entry: dict[str, Any]
) -> tuple[TensorStub, str]:
    where = f"{path}: the tensor {name!r}"
    try:
        if entry["use_pickle"] is not False:
            raise ValueError("it is no bare data")
        meta = entry["tensor_meta"]
        dtype = _DTYPES[meta["dtype"]]
        shape = tuple(_size(size) for size in meta["sizes"])
        stride = tuple(_size(size) for size in meta["strides"])
        offset = _size(meta["storage_offset"])
        held = f"{_FOLDER}{entry['path_name']}"
        stored = archive.sizes[f"{archive.prefix}/{held}"]
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where} is not described as torch writes it") from error
    if len(shape) != len(stride) or len(shape) > MAX_DIMS:
        raise CheckpointError(f"{where} has {len(shape)} sizes and {len(stride)} strides")
    storage = StorageStub(dtype, held, stored // ITEMSIZE[dtype])
    stub = TensorStub(dtype, shape, stride, offset, storage)
    if not stub.fits():
        raise CheckpointError(f"{where} reaches past the end of its data")
    return stub, held


def _size(value: Any) -> int:
    number = value["as_int"]
    if type(number) is not int or not 0 <= number < 1 << 62:
        raise ValueError(number)
    return number
