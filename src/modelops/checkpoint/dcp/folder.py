"""Opens a folder of torch.distributed.checkpoint: FSDP2, Megatron's torch_dist, plain DCP."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.checkpoint import containers
from modelops.checkpoint.dcp import index, metadata, safetensors_parts
from modelops.checkpoint.dcp.index import Index, ShardedTensor
from modelops.checkpoint.dcp.reading import read
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DcpFolder:
    """A vetted folder: its whole index, and the names of the weights with their tensors."""

    index: Index
    weights: dict[str, ShardedTensor]
    files: dict[str, Path]
    key: tuple[str, ...]
    notes: tuple[str, ...]

    def read(self) -> dict[str, Tensor]:
        """Return the weights under the names that the model gave them."""
        whole = read(self.weights.values())
        return {name: whole[tensor.name] for name, tensor in self.weights.items()}


def is_dcp(folder: Path) -> bool:
    """Whether a folder says of itself that it is one."""
    if (folder / metadata.NAME).exists() or (folder / metadata.NAME).is_symlink():
        return True
    return bool(safetensors_parts.parts_in(folder))


def read_index(folder: Path) -> Index:
    """Return a folder's index, unchecked against its files.

    Raises:
        UnsafeInputError: it names what no checkpoint needs; nothing was run.
        CheckpointError: it is damaged.
    """
    if (folder / metadata.NAME).exists() or (folder / metadata.NAME).is_symlink():
        return metadata.read_metadata(folder)
    return safetensors_parts.read_parts(folder)


def open_dcp(folder: Path, weights_key: str | None) -> DcpFolder:
    """Vet a folder and find the weights in it.

    Raises:
        UnsafeInputError: it names what no checkpoint needs, or a file outside the folder.
        CheckpointError: it is damaged, not whole, or holds no weights or several.
    """
    found = read_index(folder)
    if not found.tensors:
        raise CheckpointError(f"{folder} holds no tensors")
    root = nested(found)
    chosen = containers.choose(root, is_tensor, weights_key, folder)
    weights = {
        name: value
        for name, value in containers.select(root, chosen.path).items()
        if is_tensor(value)
    }
    weights = _without_training_state(weights)
    index.check(weights.values())
    files = found.files(tensor.name for tensor in weights.values())
    notes = []
    if chosen.path:
        notes.append(f'took the weights from "{chosen.key}" ({len(weights)} tensors)')
    parts = sum(len(tensor.parts) for tensor in weights.values())
    notes.append(f"put {len(weights)} tensors together from {parts} parts in {len(files)} files")
    aside = [
        name
        for name in found.objects
        if not containers.is_training_state((found.paths.get(name) or (name,))[0])
    ]
    if aside:
        shown = ", ".join(aside[:5]) + (" …" if len(aside) > 5 else "")
        notes.append(f"left aside what is no tensor, unread: {shown}")
    if (folder / "common.pt").exists():
        notes.append("left aside common.pt, unopened: training state of Megatron-Core")
    named = {path.relative_to(folder).as_posix(): path for path in files}
    if (folder / metadata.NAME).exists():
        named[metadata.NAME] = folder / metadata.NAME
    return DcpFolder(found, weights, named, chosen.path, tuple(notes))


def nested(found: Index) -> dict[str, Any]:
    """Return the tensors in the nested dict that was saved, as far as the folder tells of it."""
    root: dict[str, Any] = {}
    for name, tensor in found.tensors.items():
        keys = found.paths.get(name) or (name,)
        at = root
        for key in keys[:-1]:
            inner = at.setdefault(key, {})
            if not isinstance(inner, dict):
                raise CheckpointError(f"the key {key!r} holds a tensor, and others under it")
            at = inner
        at[keys[-1]] = tensor
    return root


def is_tensor(value: object) -> bool:
    """Whether a value of the nested dict is a tensor."""
    return isinstance(value, ShardedTensor)


def _without_training_state(weights: dict[str, ShardedTensor]) -> dict[str, ShardedTensor]:
    """Leave out an optimizer's tensors that lie flat beside the weights, as Megatron saves them."""
    kept = {n: t for n, t in weights.items() if not containers.is_training_state(n.split(".")[0])}
    return kept or weights
