"""Shows what a checkpoint holds, safe or not, without running anything in it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from modelops.checkpoint import (
    containers,
    dcp,
    deepspeed,
    gguf_file,
    keys,
    pt2_file,
    safetensors_file,
    torch_file,
    trainers,
)
from modelops.checkpoint.constructors import is_allowed
from modelops.checkpoint.opening import vet
from modelops.checkpoint.paths import inside, open_regular
from modelops.checkpoint.sniff import sniff
from modelops.checkpoint.source import resolve
from modelops.checkpoint.standins import ITEMSIZE, TensorStub
from modelops.checkpoint.zip_layout import read_archive
from modelops.errors import InputError
from modelops.signature import Frozen

_WEIGHT_FILES = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.ckpt")
# Written beside the weights by trainers: never opened, not even to look.
_TRAINING_STATE = ("optimizer*", "scheduler*", "scaler*", "rng_state*", "training_args*")


class TensorInfo(Frozen):
    """One tensor as the file declares it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Inspection(Frozen):
    """What a checkpoint holds, told without running anything in it.

    ``files`` maps names to bytes; ``would_run`` are the globals that a careless load would
    import and call; ``refused`` is why it would not be opened, or None.
    """

    name: str
    format: str
    files: dict[str, int]
    tensors: tuple[TensorInfo, ...]
    parameters: int
    """Number of elements of all tensors."""
    bytes: int
    """Bytes of all tensors."""
    dtypes: dict[str, int]
    """Number of tensors by dtype."""
    prefixes: dict[str, int] = Field(default_factory=dict)
    """Number of tensors under each first segment of the names."""
    containers: dict[str, int] = Field(default_factory=dict)
    """State dicts found, by dotted path, with their number of tensors."""
    progress: dict[str, int | float] = Field(default_factory=dict)
    """Step, epoch and the like, where the file holds them."""
    trainer: str | None = None
    would_run: tuple[str, ...] = ()
    refused: str | None = None
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """What the files of a checkpoint hold, gathered."""

    tensors: list[TensorInfo] = field(default_factory=list)
    packed: int = 0
    """Bytes of tensors whose values are packed in blocks."""
    containers: dict[str, int] = field(default_factory=dict)
    progress: dict[str, int | float] = field(default_factory=dict)
    would_run: dict[str, None] = field(default_factory=dict)
    kinds: dict[str, None] = field(default_factory=dict)
    trainer: str | None = None
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def inspect_checkpoint(source: str) -> Inspection:
    """Look into a file, a folder or a hub id.

    A checkpoint that would be refused is shown all the same, with the reason in ``refused``.

    Raises:
        UsageError: the source is neither a path nor a hub id.
        CheckpointError: there is no such file, or it is no regular file.
        MissingEnvironmentError: it must be fetched, and cannot be.
    """
    located = resolve(source)
    folder = located.path if located.path.is_dir() else None
    if folder is None:
        open_regular(located.path).close()
    refused: str | None = None
    notes: tuple[str, ...] = ()
    form: str | None = None
    weights: list[Path] = []
    try:
        opened = vet(located)
        notes, form, weights = opened.notes, opened.format, list(opened.files)
    except InputError as error:
        refused = error.message
        weights = [located.path] if folder is None else _weights_in(folder)
    found = _Found()
    if folder is not None and dcp.is_dcp(folder):
        _look_into_dcp(folder, found)
    elif folder is not None and form in (None, "deepspeed") and deepspeed.is_deepspeed(folder):
        weights = _look_into_deepspeed(folder, found) or weights
    else:
        for path in weights:
            _look(path, found)
    root = folder or located.path.parent
    return Inspection(
        name=located.name,
        format=form or ", ".join(found.kinds) or "unknown",
        files={p.relative_to(root).as_posix(): p.stat().st_size for p in weights},
        tensors=tuple(found.tensors),
        parameters=sum(math.prod(t.shape) for t in found.tensors),
        bytes=found.packed
        or sum(math.prod(t.shape) * ITEMSIZE.get(t.dtype, 1) for t in found.tensors),
        dtypes=dict(Counter(t.dtype for t in found.tensors)),
        prefixes=keys.prefixes(t.name for t in found.tensors),
        containers=found.containers,
        progress=found.progress,
        trainer=found.trainer,
        would_run=tuple(found.would_run),
        refused=refused or (found.faults[0] if found.faults else None),
        notes=(*notes, *found.notes),
    )


def _weights_in(folder: Path) -> list[Path]:
    """Return the files of a refused folder that look like weights and are its own."""
    found = []
    for path in sorted({path for pattern in _WEIGHT_FILES for path in folder.glob(pattern)}):
        if not any(path.match(pattern) for pattern in _TRAINING_STATE):
            with suppress(InputError):
                found.append(inside(folder, path.name))
    return found


def _look(path: Path, found: _Found, inert: frozenset[str] = frozenset()) -> None:
    try:
        with open_regular(path) as file:
            kind = sniff(file)
            found.kinds[kind] = None
            if kind == "safetensors":
                entries, metadata = safetensors_file.check_header(file, path)
                found.tensors += [
                    TensorInfo(
                        name=e.name, dtype=safetensors_file.dtype_name(e.dtype), shape=e.shape
                    )
                    for e in entries.values()
                ]
                if metadata.get("format") == "pt":
                    found.trainer = found.trainer or "safetensors of PyTorch"
                return
            if kind == "gguf":
                _look_into_gguf(gguf_file.check_header(file, path), found)
                return
            if kind == "zip" and read_archive(file, path).kind == "pt2":
                _look_into_pt2(path, found)
                return
            scanned = torch_file.scan_open(file, path, inert)
    except InputError as error:
        found.faults.append(error.message)
        return
    if scanned.fault:
        found.faults.append(scanned.fault.message)
    found.would_run |= {name: None for name in scanned.globals if not is_allowed(name)}
    _look_inside(scanned.root, _is_stub, found)


def _look_into_dcp(folder: Path, found: _Found) -> None:
    found.kinds["dcp"] = None
    try:
        found.would_run |= dict.fromkeys(dcp.globals_of(folder))
        index = dcp.read_index(folder)
        root = dcp.nested(index)
        training = dcp.look(folder, index, trainers.COUNTERS)
    except InputError as error:
        found.faults.append(error.message)
        return
    _look_inside(root, dcp.is_tensor, found)
    found.would_run |= training.globals
    found.progress |= training.progress
    found.trainer = training.trainer
    found.notes += training.notes


def _look_into_deepspeed(folder: Path, found: _Found) -> list[Path]:
    """Show the whole weights, or else what each file holds; return the files."""
    found.kinds["deepspeed"] = None
    try:
        opened = deepspeed.open_deepspeed(folder)
    except InputError:
        files = deepspeed.files_in(folder)
        for path in files:
            _look(path, found, deepspeed.INERT)
        return files
    found.would_run |= {name: None for name in opened.globals if not is_allowed(name)}
    found.tensors += [
        TensorInfo(name=name, dtype=weight.dtype, shape=weight.shape)
        for name, weight in opened.weights.items()
    ]
    found.progress |= trainers.progress_of(opened.state)
    inner = trainers.trainer_of(opened.state)
    lightning = inner is not None and not inner.startswith("DeepSpeed")
    found.trainer = f"{inner} with {opened.trainer}" if lightning else opened.trainer
    return [*opened.files.values()]


def _is_stub(value: object) -> bool:
    return isinstance(value, TensorStub)


def _look_into_pt2(path: Path, found: _Found) -> None:
    weights = pt2_file.read_weights(path).tensors
    found.tensors += [
        TensorInfo(name=name, dtype=stub.dtype, shape=stub.shape)
        for name, (stub, _) in weights.items()
    ]
    found.trainer = "torch.export"
    found.kinds = {"pt2": None}


def _look_into_gguf(header: gguf_file.GgufHeader, found: _Found) -> None:
    found.tensors += [
        TensorInfo(name=t.name, dtype=t.type_name, shape=t.shape) for t in header.tensors
    ]
    found.packed += sum(t.nbytes for t in header.tensors)
    found.trainer = f"a converter to GGUF; architecture {header.architecture or 'not said'}"


def _look_inside(root: Any, is_tensor: Callable[[Any], bool], found: _Found) -> None:
    states = containers.find_containers(root, is_tensor)
    found.containers |= {c.key: c.tensors for c in states}
    for state in states:
        # Several state dicts share names: their paths tell them apart.
        prefix = f"{state.key}." if len(states) > 1 and state.key else ""
        found.tensors += [
            TensorInfo(name=prefix + name, dtype=value.dtype, shape=value.shape)
            for name, value in containers.select(root, state.path).items()
            if isinstance(name, str) and is_tensor(value)
        ]
    if isinstance(root, Mapping):
        found.progress |= trainers.progress_of(root)
        found.trainer = trainers.trainer_of(root) or found.trainer
