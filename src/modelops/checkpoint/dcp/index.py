"""What tensors a folder holds and where their parts lie: checked before anything is read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from modelops.checkpoint.standins import ITEMSIZE
from modelops.errors import CheckpointError

Sizes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One box of a tensor: where it lies in the whole, and in which bytes of which file.

    ``saved`` says whether the bytes are a file of torch.save of their own, or the plain values.
    """

    offsets: Sizes
    sizes: Sizes
    file: Path
    begin: int
    length: int
    saved: bool


@dataclass(frozen=True, slots=True)
class ShardedTensor:
    """A tensor that is whole once its parts are put together."""

    name: str
    dtype: str
    shape: Sizes
    parts: tuple[Part, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Index:
    """All tensors of a folder by name, and where its values lie that are no tensors.

    ``paths`` has each name's keys in the nested dict that was saved, where the folder tells them.
    """

    tensors: dict[str, ShardedTensor]
    objects: dict[str, Part | None] = field(default_factory=dict)
    paths: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def files(self, names: Iterable[str]) -> tuple[Path, ...]:
        """Return the files that hold these tensors, sorted."""
        return tuple(sorted({part.file for name in names for part in self.tensors[name].parts}))


def check(tensors: Iterable[ShardedTensor]) -> None:
    """Make sure that parts cover every tensor exactly, and that their bytes are really there.

    Raises:
        CheckpointError: a part is missing, too many, out of bounds, or its bytes are not there.
    """
    held: dict[Path, list[tuple[int, int, str]]] = defaultdict(list)
    for tensor in tensors:
        _check_cover(tensor)
        for part in tensor.parts:
            needed = math.prod(part.sizes) * ITEMSIZE[tensor.dtype]
            if part.length < needed:
                raise CheckpointError(
                    f"{part.file}: the part of {tensor.name!r} at {list(part.offsets)} has "
                    f"{part.length} bytes, {needed} are needed"
                )
            held[part.file].append((part.begin, part.begin + part.length, tensor.name))
    for path, spans in held.items():
        _check_spans(path, spans)


def _check_spans(path: Path, spans: list[tuple[int, int, str]]) -> None:
    size = path.stat().st_size
    spans.sort()
    before = 0
    for begin, end, name in spans:
        if begin < 0 or end > size:
            raise CheckpointError(
                f"{path} is truncated: {name!r} lies at {begin}–{end}, the file has {size} bytes",
                hint="fetch the checkpoint again, with all its files",
            )
        if begin < before:
            raise CheckpointError(f"{path}: the bytes of {name!r} are another tensor's too")
        before = end


def _check_cover(tensor: ShardedTensor) -> None:
    rank = len(tensor.shape)
    volume = 0
    for part in tensor.parts:
        box = zip(part.offsets, part.sizes, tensor.shape, strict=False)
        if not len(part.offsets) == len(part.sizes) == rank or any(
            low < 0 or size < 0 or low + size > whole for low, size, whole in box
        ):
            raise CheckpointError(
                f"{part.file}: the part of {tensor.name!r} at {list(part.offsets)} of "
                f"{list(part.sizes)} reaches outside the whole, {list(tensor.shape)}"
            )
        volume += math.prod(part.sizes)
    whole = math.prod(tensor.shape)
    if volume < whole:
        raise CheckpointError(
            f"tensor {tensor.name!r} is not whole: its parts hold {volume} of {whole} values",
            hint="fetch the checkpoint again, with the files of every rank",
        )
    if volume > whole or _overlap(tensor):
        raise CheckpointError(f"tensor {tensor.name!r}: two parts hold the same values")


def _overlap(tensor: ShardedTensor) -> bool:
    """Whether two parts share a value; parts are few at any place along the first dim."""
    if not tensor.shape:
        return False
    active: list[Part] = []
    for part in sorted((p for p in tensor.parts if math.prod(p.sizes)), key=lambda p: p.offsets):
        active = [a for a in active if a.offsets[0] + a.sizes[0] > part.offsets[0]]
        if any(_meet(a, part) for a in active):
            return True
        active.append(part)
    return False


def _meet(a: Part, b: Part) -> bool:
    return all(
        low < other + length and other < low + size
        for low, size, other, length in zip(a.offsets, a.sizes, b.offsets, b.sizes, strict=True)
    )
