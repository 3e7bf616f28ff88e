"""``.metadata`` of torch.distributed.checkpoint: a pickle, followed with inert stand-ins.

torch itself unpickles it, which would run whatever it names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops.checkpoint.dcp.index import Index, Part, ShardedTensor, Sizes
from modelops.checkpoint.paths import inside, open_regular
from modelops.checkpoint.pickle_machine import PickleContents, walk
from modelops.checkpoint.standins import ITEMSIZE, Global, Record
from modelops.errors import CheckpointError, UnsafeInputError

NAME = ".metadata"

_META = "torch.distributed.checkpoint.metadata."
_TENSOR, _BYTES = f"{_META}TensorStorageMetadata", f"{_META}BytesStorageMetadata"
_CHUNK, _PROPERTIES = f"{_META}ChunkStorageMetadata", f"{_META}TensorProperties"
_INDEX, _PLACE = f"{_META}MetadataIndex", "torch.distributed.checkpoint.filesystem._StorageInfo"
_RECORDS = frozenset(
    {
        _TENSOR,
        _BYTES,
        _CHUNK,
        _PROPERTIES,
        _INDEX,
        _PLACE,
        f"{_META}Metadata",
        f"{_META}StorageMeta",
        f"{_META}_MEM_FORMAT_ENCODING",
        "torch.serialization._get_layout",
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "pathlib.WindowsPath",
    }
)
_PLAIN = frozenset({"torch.Size", "collections.OrderedDict", *(f"torch.{n}" for n in ITEMSIZE)})


def read_metadata(folder: Path) -> Index:
    """Return the index of a folder; the parts are not yet checked against their files.

    Raises:
        UnsafeInputError: it names what no such folder needs, or a file outside the folder.
        CheckpointError: it is damaged, or does not say what it must.
    """
    path = inside(folder, NAME)
    contents = _follow(path)
    foreign = tuple(name for name in contents.globals if name not in _RECORDS | _PLAIN)
    if foreign:
        raise UnsafeInputError(
            f"{path} asks to import {len(foreign)} thing{'s' if len(foreign) > 1 else ''} that no "
            f"checkpoint needs: {', '.join(name[:200] for name in foreign[:10])}; nothing was run",
            hint="where you trust it, save the model's weights again: "
            "torch.distributed.checkpoint.save(model.state_dict(), checkpoint_id=…)",
        )
    if contents.damage is not None:
        raise CheckpointError(
            f"{path}, the index of torch.distributed.checkpoint, is damaged: {contents.damage}",
            hint="fetch the checkpoint again: without this file nobody can read the others",
        )
    if not isinstance(contents.root, Record):
        raise CheckpointError(f"{path} is no index of torch.distributed.checkpoint")
    return _index(contents.root, folder, path)


def globals_of(folder: Path) -> tuple[str, ...]:
    """Return what a folder's pickle, where it has one, names and no such folder needs."""
    if not (folder / NAME).exists():
        return ()
    return tuple(n for n in _follow(inside(folder, NAME)).globals if n not in _RECORDS | _PLAIN)


def _follow(path: Path) -> PickleContents:
    with open_regular(path) as file:
        return walk(file, records=_RECORDS)


def _index(root: Record, folder: Path, path: Path) -> Index:
    told, stored = root.field("state_dict_metadata"), root.field("storage_data")
    if not isinstance(told, dict) or not isinstance(stored, dict):
        raise CheckpointError(f"{path} has no table of tensors, or none of files")
    places = _places(stored, folder, path)
    tensors: dict[str, ShardedTensor] = {}
    objects: dict[str, Part | None] = {}
    for name, value in told.items():
        if not isinstance(name, str) or not isinstance(value, Record):
            raise CheckpointError(f"{path} has an entry that is no tensor: {str(name)[:100]!r}")
        if value.made_by == _TENSOR:
            tensors[name] = _tensor(name, value, places, path)
        else:
            place = places.get((name, ()))
            objects[name] = Part((), (), *place, saved=True) if place else None
    planned = root.field("planner_data")
    paths = {
        name: tuple(str(key) for key in keys)
        for name, keys in (planned if isinstance(planned, dict) else {}).items()
        if isinstance(name, str) and isinstance(keys, tuple)
    }
    return Index(tensors, objects, paths)


def _places(
    stored: dict[Any, Any], folder: Path, path: Path
) -> dict[tuple[str, Sizes], tuple[Path, int, int]]:
    """Return file, begin and length of each part by the tensor's name and the part's offsets."""
    files: dict[str, Path] = {}
    found: dict[tuple[str, Sizes], tuple[Path, int, int]] = {}
    for key, value in stored.items():
        if not (isinstance(key, Record) and isinstance(value, Record)):
            raise CheckpointError(f"{path} has a damaged table of files")
        name, relative = key.field("fqn"), value.field("relative_path")
        begin, length = value.field("offset"), value.field("length")
        if not isinstance(name, str) or not isinstance(relative, str):
            raise CheckpointError(f"{path} has a part without a name or a file")
        if type(begin) is not int or type(length) is not int or begin < 0 or length < 0:
            raise CheckpointError(f"{path}: the part of {name!r} has no place in {relative!r}")
        if value.field("transform_descriptors"):
            raise CheckpointError(
                f"{path}: {name!r} was written through a transform (compression or encryption)",
                hint="save it again without stream transforms",
            )
        if relative not in files:
            try:
                files[relative] = inside(folder, relative)
            except UnsafeInputError as error:
                raise UnsafeInputError(
                    f"{path} names the file {relative!r}: {error.message}"
                ) from error
            except CheckpointError as error:
                raise CheckpointError(
                    f"{path} names the file {relative!r}: {error.message}",
                    hint="fetch the checkpoint again, with the files of every rank",
                ) from error
        offsets = key.field("offset")
        found[name, _sizes(offsets, path) if offsets is not None else ()] = (
            files[relative],
            begin,
            length,
        )
    return found


def _tensor(
    name: str,
    value: Record,
    places: dict[tuple[str, Sizes], tuple[Path, int, int]],
    path: Path,
) -> ShardedTensor:
    properties, chunks = value.field("properties"), value.field("chunks")
    shape = _sizes(value.field("size"), path)
    if not isinstance(chunks, list) or not isinstance(properties, Record):
        raise CheckpointError(f"{path} does not say what {name!r} is made of")
    dtype = _dtype(properties)
    if dtype not in ITEMSIZE:
        raise CheckpointError(f"{path}: tensor {name!r} is of no dtype that is known: {dtype}")
    parts = []
    for chunk in chunks:
        if not isinstance(chunk, Record):
            raise CheckpointError(f"{path}: a part of {name!r} is none")
        offsets = _sizes(chunk.field("offsets"), path)
        place = places.get((name, offsets))
        if place is None:
            raise CheckpointError(
                f"{path} says of no file that it holds {name!r} at {list(offsets)}",
                hint="fetch the checkpoint again, with the files of every rank",
            )
        parts.append(Part(offsets, _sizes(chunk.field("sizes"), path), *place, saved=True))
    return ShardedTensor(name, dtype, shape, tuple(parts))


def _dtype(properties: Record) -> str:
    state = properties.state
    kind = state[0] if isinstance(state, tuple) and state else properties.field("dtype")
    return kind.name if isinstance(kind, Global) and kind.module == "torch" else "unknown"


def _sizes(value: Any, path: Path) -> Sizes:
    if (
        not isinstance(value, tuple)
        or len(value) > 64
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in value)
    ):
        raise CheckpointError(f"{path} has sizes that are none")
    return value
