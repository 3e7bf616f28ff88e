"""Where each whole weight lies in the partitions of all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from modelops.checkpoint.deepspeed.states import Shape, States
from modelops.checkpoint.standins import TensorStub
from modelops.errors import CheckpointError

_NARROW = ("float16", "bfloat16")


@dataclass(frozen=True)
class Piece:
    """A tensor, or a run of one, in a file."""

    path: Path
    stub: TensorStub


@dataclass(frozen=True)
class Joined:
    """A whole weight: its pieces one behind the other, widened to ``dtype``."""

    dtype: str
    shape: Shape
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Plan:
    """Every weight by name, the same object where names share one; and what is worth saying."""

    weights: dict[str, Joined]
    notes: tuple[str, ...]


def plan(states: States) -> Plan:
    """Find every weight of the model.

    Raises:
        CheckpointError: the partitions have other sizes than the parameters; names both.
    """
    first = states.models[0]
    found: dict[str, Joined] = {}
    if states.stage == 3:
        found |= _interleaved(states)
    elif states.stage:
        found |= _consecutive(states)
    dtype = next((w.dtype for w in found.values()), None)
    for name, shape in first.frozen.items():
        found[name] = _frozen(states, name, shape, dtype)
    for name in first.buffers:
        if name in first.module:
            found[name] = _whole(first.path, first.module[name], dtype)
    notes = _shared(states, found, dtype)
    ordered = [
        *(n for n in first.module if n in found),
        *(n for n in found if n not in first.module),
    ]
    return Plan({name: found[name] for name in ordered}, notes)


def _consecutive(states: States) -> dict[str, Joined]:
    """ZeRO-1 and 2: a group's parameters form one run, cut into as many parts as ranks."""
    groups = states.models[0].groups
    found: dict[str, Joined] = {}
    for partition in states.partitions:
        if len(partition.runs) != len(groups):
            raise CheckpointError(
                f"{partition.path} holds {len(partition.runs)} groups of parameters; "
                f"{states.models[0].path.name} names {len(groups)}"
            )
    for number, shapes in enumerate(groups):
        gaps = states.alignments[number : number + 1] if states.alignments else ()
        free = gaps[0] if gaps and len(gaps[0]) == len(shapes) else (0,) * len(shapes)
        spans: dict[str, tuple[int, int]] = {}
        end = 0
        for (name, shape), gap in zip(shapes.items(), free, strict=True):
            spans[name] = end, end + math.prod(shape)
            end = spans[name][1] + gap
        runs = _fitting(states, number, spans, end)
        for name, (low, high) in spans.items():
            pieces = tuple(_cut(runs, low, high))
            found[name] = Joined(runs[0][1].dtype, shapes[name], pieces)
    return found


def _fitting(
    states: States, number: int, spans: dict[str, tuple[int, int]], needed: int
) -> list[tuple[Path, TensorStub]]:
    """Return a group's runs by rank, once their lengths are those that DeepSpeed gives them."""
    runs = [(p.path, p.runs[number]) for p in states.partitions]
    size = runs[0][1].shape[0]
    begin = 0
    for rank, (partition, (path, run)) in enumerate(zip(states.partitions, runs, strict=True)):
        length = run.shape[0]
        # Padding at the end of the last ranks' runs is usually left out.
        lean = max(0, min(size, needed - rank * size))
        padding = partition.paddings[number] if number < len(partition.paddings) else 0
        if length not in (size, lean, size - padding):
            raise _misfit(path, begin + min(length, lean), spans, f"{length} elements", lean)
        if run.dtype != runs[0][1].dtype:
            raise CheckpointError(f"{path} is {run.dtype}, and {runs[0][0].name} is not")
        begin += length
    # Groups are padded to twice the number of ranks.
    if begin < needed or begin - needed >= 2 * states.world:
        raise _misfit(
            runs[-1][0], begin, spans, f"{begin} elements with those of all ranks", needed
        )
    return runs


def _misfit(
    path: Path, at: int, spans: dict[str, tuple[int, int]], held: str, needed: int
) -> CheckpointError:
    name = next((n for n, (_, high) in spans.items() if high > at), next(reversed(spans), "?"))
    return CheckpointError(
        f"{path} does not fit the parameter {name!r}: its group has {held}, {needed} are needed",
        hint="fetch the file again, from the save that the other files are of",
    )


def _interleaved(states: States) -> dict[str, Joined]:
    """ZeRO-3: each parameter is cut into as many parts as ranks; each rank's follow each other."""
    shapes = {name: shape for group in states.models[0].groups for name, shape in group.items()}
    first = states.partitions[0]
    spans: dict[str, tuple[int, int]] = {}
    end = 0
    for name, shape in shapes.items():
        spans[name] = end, end + -(-math.prod(shape) // states.world)
        end = spans[name][1]
    for partition in states.partitions:
        sizes = [run.shape[0] for run in partition.runs]
        if sum(sizes) != end:
            raise _misfit(partition.path, sum(sizes), spans, f"{sum(sizes)} elements", end)
        if sizes != [run.shape[0] for run in first.runs]:
            raise CheckpointError(
                f"{partition.path} divides its groups otherwise than {first.path.name}"
            )
        if {run.dtype for run in partition.runs} != {first.runs[0].dtype}:
            raise CheckpointError(f"{partition.path} holds partitions of several dtypes")
    found = {}
    for name, (low, high) in spans.items():
        left = math.prod(shapes[name])
        pieces: list[Piece] = []
        for partition in states.partitions:
            share = min(high - low, left)
            runs = [(partition.path, run) for run in partition.runs]
            pieces += _cut(runs, low, low + share)
            left -= share
        found[name] = Joined(first.runs[0].dtype, shapes[name], tuple(pieces))
    return found


def _cut(runs: Sequence[tuple[Path, TensorStub]], low: int, high: int) -> Iterator[Piece]:
    """Yield what lies from ``low`` to ``high`` of runs that follow each other."""
    begin = 0
    for path, run in runs:
        end = begin + run.shape[0]
        start, stop = max(low, begin), min(high, end)
        if start < stop:
            yield Piece(path, _part(run, start - begin, stop - start))
        begin = end


def _part(run: TensorStub, start: int, length: int) -> TensorStub:
    return replace(run, shape=(length,), stride=(1,), offset=run.offset + start)


def _frozen(states: States, name: str, shape: Shape, dtype: str | None) -> Joined:
    """Find a parameter that was not trained: whole in stages 1 and 2, divided in stage 3."""
    models = states.models if states.stage == 3 else states.models[:1]
    for model in models:
        if name not in model.fragments:
            raise CheckpointError(f"{model.path} does not hold its share of the parameter {name!r}")
    shares = [(model.path, model.fragments[name]) for model in models]
    path, first = shares[0]
    if states.stage != 3:
        if first.shape != shape:
            raise CheckpointError(
                f"{path} holds {name!r} as {list(first.shape)}, but names {list(shape)}"
            )
        return _whole(path, first, dtype)
    for path, share in shares:
        if len(share.shape) != 1 or share.stride != (1,) or share.dtype != first.dtype:
            raise CheckpointError(f"{path}: the share of {name!r} is no flat tensor of its kind")
    held, needed = sum(share.shape[0] for _, share in shares), math.prod(shape)
    if not needed <= held < needed + states.world:
        raise _misfit(path, 0, {name: (0, needed)}, f"{held} elements", needed)
    return Joined(_wide(first.dtype, dtype), shape, tuple(_cut(shares, 0, needed)))


def _whole(path: Path, stub: TensorStub, dtype: str | None) -> Joined:
    return Joined(_wide(stub.dtype, dtype), stub.shape, (Piece(path, stub),))


def _wide(own: str, trained: str | None) -> str:
    """Return the dtype of what was trained for what is kept narrower beside it."""
    return trained if own in _NARROW and trained == "float32" else own


def _shared(states: States, found: dict[str, Joined], dtype: str | None) -> tuple[str, ...]:
    """Add the names that share a weight with one found, and what stages 1 and 2 keep whole.

    DeepSpeed names shared parameters in stages 1 and 2 alone; in all stages names that share a
    weight share a storage. Stage 1 names no frozen parameter: the module's copy is all there is.
    """
    first = states.models[0]
    notes = []
    # A storage that several weights share, as flat groups are, tells them apart by their place.
    owners: dict[TensorStub, list[str]] = {}
    for name in found:
        if name in first.module:
            owners.setdefault(first.module[name], []).append(name)
    for name, other in first.shared.items():
        if name not in found and other in found:
            found[name] = found[other]
            notes.append(f"{name} shares the weight of {other}")
    narrow, lost = [], []
    for name, stub in first.module.items():
        if name in found:
            continue
        same = owners.get(stub, [])
        if len(same) == 1:
            found[name] = found[same[0]]
            notes.append(f"{name} shares the weight of {same[0]}")
        elif states.stage != 3:
            found[name] = _whole(first.path, stub, dtype)
            if dtype is not None and stub.dtype in _NARROW:
                narrow.append(name)
        else:
            lost.append(name)
    if narrow:
        notes.append(
            f"{len(narrow)} tensors that were not trained are as the model kept them, in "
            f"{first.module[narrow[0]].dtype}: {', '.join(narrow[:5])}"
        )
    if lost:
        notes.append(f"no rank's file holds the values of: {', '.join(lost[:5])}")
    return tuple(notes)
