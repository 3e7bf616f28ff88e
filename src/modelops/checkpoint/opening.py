"""Opens a checkpoint: resolve, vet, and say what it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from modelops.checkpoint import (
    containers,
    dcp,
    deepspeed,
    digest,
    gguf_file,
    pt2_file,
    safetensors_file,
    torch_file,
)
from modelops.checkpoint.checkpoint import Checkpoint, Format
from modelops.checkpoint.huggingface import holds_weights, open_documents, open_folder
from modelops.checkpoint.keys import strip_wrappers
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.sharded import names_in
from modelops.checkpoint.sniff import Kind, sniff
from modelops.checkpoint.source import Source, resolve
from modelops.checkpoint.standins import TensorStub
from modelops.errors import CheckpointError, UsageError
from modelops.progress import Progress, silent


def open_checkpoint(
    source: str,
    *,
    weights_key: str | None = None,
    cache_dir: Path | None = None,
    progress: Progress = silent,
) -> Checkpoint:
    """Open a file, a folder or a hub id, without running anything that it carries.

    ``weights_key`` is the dotted path to the state dict in a training dict that holds several;
    ``cache_dir`` is the hub's cache (default: its own).

    Raises:
        UsageError: the source or ``weights_key`` cannot be meant as given.
        CheckpointError: it is missing, damaged, incomplete, or holds no weights or several.
        UnsafeInputError: it asks for code, or reaches outside its folder.
        MissingEnvironmentError: it must be fetched, and cannot be.
    """
    found = resolve(source, cache_dir=cache_dir, progress=progress)
    progress("checking the checkpoint")
    vetted = vet(found, weights_key)
    progress("hashing the weights")
    hashed = vetted.hashed
    sha256 = digest.sha256_files(hashed) if found.path.is_dir() else digest.sha256_file(found.path)
    return replace(vetted, sha256=sha256)


def vet(found: Source, weights_key: str | None = None) -> Checkpoint:
    """Open what lies here as ``open_checkpoint`` does, but hash nothing: no tensor is read."""
    if found.path.is_dir():
        for belongs, opened in _FOLDERS:
            if belongs(found.path):
                return opened(found, weights_key)
        return _open_folder(found, weights_key)
    return _open_file(found, weights_key)


def _open_folder(found: Source, weights_key: str | None) -> Checkpoint:
    folder = open_folder(found.path)
    files = tuple(folder.weights.values())
    names: list[str] = []
    notes = [*folder.notes]
    key: tuple[str, ...] = ()
    if len(files) == 1:
        held, key, found_notes = _read(files[0], weights_key)
        names, notes = held, [*notes, *found_notes]
    else:
        _no_key(weights_key, found.path)
        names = [name for path in files for name in names_in(path)]
    if folder.config is not None:
        form: Format = "huggingface"
    elif _is_safetensors(files[0]):
        form = "safetensors" if len(files) == 1 else "safetensors-sharded"
    else:
        form = "torch"
    hashed = dict(folder.weights)
    if folder.config is not None:
        hashed["config.json"] = folder.carried["config.json"]
    return Checkpoint(
        path=found.path,
        name=found.name,
        format=form,
        hashed=hashed,
        revision=found.revision,
        config=folder.config,
        files=files,
        carried=folder.carried,
        notes=(*notes, *strip_wrappers(names).notes),
        weights_key=key,
    )


def _open_dcp(found: Source, weights_key: str | None) -> Checkpoint:
    folder = dcp.open_dcp(found.path, weights_key)
    return replace(_joined(found, "dcp", folder), weights_key=folder.key)


def _is_deepspeed(folder: Path) -> bool:
    """Whether a folder is DeepSpeed's, and no whole weights lie beside."""
    return deepspeed.is_deepspeed(folder) and not holds_weights(folder)


def _open_deepspeed(found: Source, weights_key: str | None) -> Checkpoint:
    _no_key(weights_key, found.path)
    return _joined(found, "deepspeed", deepspeed.open_deepspeed(found.path))


def _joined(
    found: Source, form: Format, folder: dcp.DcpFolder | deepspeed.DeepSpeedFolder
) -> Checkpoint:
    """Return the checkpoint of a folder whose tensors are put together from what ranks wrote."""
    carried, config = open_documents(found.path)
    hashed = dict(folder.files)
    if config is not None:
        hashed["config.json"] = carried["config.json"]
    return Checkpoint(
        path=found.path,
        name=found.name,
        format=form,
        hashed=hashed,
        revision=found.revision,
        files=tuple(folder.files.values()),
        config=config,
        carried=carried,
        notes=(*folder.notes, *strip_wrappers(list(folder.weights)).notes),
        read=folder.read,
    )


# What says of itself which trainer's folder it is; all others are read by their file names.
_FOLDERS: tuple[tuple[Callable[[Path], bool], Callable[..., Checkpoint]], ...] = (
    (dcp.is_dcp, _open_dcp),
    (_is_deepspeed, _open_deepspeed),
)


def _open_file(found: Source, weights_key: str | None) -> Checkpoint:
    kind = _kind(found.path)
    deepspeed.refuse_share(found.path)
    if kind == "zip" and pt2_file.is_pt2(found.path):
        return _open_pt2(found, weights_key)
    names: list[str] = []
    key: tuple[str, ...] = ()
    notes: list[str] = []
    if kind == "gguf":
        _no_key(weights_key, found.path)
        gguf_file.read_header(found.path)
    else:
        names, key, notes = _read(found.path, weights_key)
    return Checkpoint(
        path=found.path,
        name=found.name,
        format=kind if kind in ("safetensors", "gguf") else "torch",
        hashed={found.path.name: found.path},
        files=(found.path,),
        notes=(*notes, *strip_wrappers(names).notes),
        weights_key=key,
    )


def _open_pt2(found: Source, weights_key: str | None) -> Checkpoint:
    _no_key(weights_key, found.path)
    weights = pt2_file.read_weights(found.path)
    pt2_file.require_trust(found.path)
    return Checkpoint(
        path=found.path,
        name=found.name,
        format="pt2",
        hashed={found.path.name: found.path},
        files=(found.path,),
        notes=(
            "took the state dict of the exported program; its code was not loaded",
            *strip_wrappers(list(weights.tensors)).notes,
        ),
        read=weights.read,
    )


def _read(path: Path, weights_key: str | None) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Return the names of one file's tensors, the path to them, and what is worth saying."""
    if _is_safetensors(path):
        _no_key(weights_key, path)
        return list(safetensors_file.read_header(path)[0]), (), []
    scanned = torch_file.scan(path)
    if scanned.fault:
        raise scanned.fault
    chosen = containers.choose(scanned.root, _is_stub, weights_key, path)
    held = containers.select(scanned.root, chosen.path)
    notes = []
    if chosen.path:
        notes.append(f'took the weights from "{chosen.key}" ({chosen.tensors} tensors)')
    if chosen.skipped:
        shown = ", ".join(name[:60] for name in chosen.skipped[:5]) + (
            " …" if len(chosen.skipped) > 5 else ""
        )
        notes.append(f"left aside what is no tensor: {shown}")
    names = [name for name, value in held.items() if isinstance(name, str) and _is_stub(value)]
    return names, chosen.path, notes


def _is_stub(value: object) -> bool:
    return isinstance(value, TensorStub)


def _is_safetensors(path: Path) -> bool:
    return _kind(path) == "safetensors"


def _kind(path: Path) -> Kind:
    with open_regular(path) as file:
        if file.read(1) == b"":
            raise CheckpointError(f"{path} is empty", hint="fetch or save the file again")
        return sniff(file)


def _no_key(weights_key: str | None, path: Path) -> None:
    if weights_key is not None:
        raise UsageError(
            f"--weights-key {weights_key} was given, but {path} holds one flat set of tensors",
            hint="leave --weights-key out",
        )
