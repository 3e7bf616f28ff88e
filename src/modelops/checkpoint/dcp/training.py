"""What a folder holds besides tensors, unpickled by nobody: who wrote it, its steps, its code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from modelops.checkpoint.constructors import is_allowed
from modelops.checkpoint.dcp import metadata
from modelops.checkpoint.dcp.index import Index
from modelops.checkpoint.dcp.reading import follow_object
from modelops.checkpoint.documents import read_json
from modelops.checkpoint.paths import inside
from modelops.errors import InputError

_MOST_OBJECTS = 1000


@dataclass
class Training:
    """The trainer in words, its counters, and the globals that unpickling would ask for."""

    trainer: str
    progress: dict[str, int | float] = field(default_factory=dict)
    globals: dict[str, None] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def look(folder: Path, found: Index, counters: Iterable[str]) -> Training:
    """Follow the pickles of a folder's objects; ``counters`` are the names of steps and the like.

    Raises:
        UnsafeInputError: the index, where there is one, leads out of the folder.
    """
    told = Training(_trainer(folder, found), globals=dict.fromkeys(metadata.globals_of(folder)))
    for name, part in [*found.objects.items()][:_MOST_OBJECTS]:
        contents = follow_object(part) if part is not None else None
        if contents is None:
            continue
        told.globals |= {path: None for path in contents.globals if not is_allowed(path)}
        if name in counters and isinstance(contents.root, int | float):
            told.progress[name] = contents.root
    if len(found.objects) > _MOST_OBJECTS:
        told.notes.append(f"looked into {_MOST_OBJECTS} of {len(found.objects)} values")
    return told


def _trainer(folder: Path, found: Index) -> str:
    files = {path.name for path in found.files(found.tensors)}
    if not (folder / metadata.NAME).exists():
        return f"torch.distributed.checkpoint, parts as safetensors in {_count(len(files), 'file')}"
    ranks = _count(len({name.split("_")[2] for name in files if name.startswith("__")}), "rank")
    if _is_megatron(folder):
        return f"Megatron-Core (torch_dist), {ranks}"
    return f"torch.distributed.checkpoint (FSDP and others), {ranks}"


def _is_megatron(folder: Path) -> bool:
    try:
        return "sharded_backend" in read_json(inside(folder, "metadata.json"))
    except InputError:
        return False


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
