"""What the files of one saved step say, checked against each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelops.checkpoint import torch_file
from modelops.checkpoint.deepspeed.layout import INERT, Layout
from modelops.checkpoint.standins import Record, TensorStub
from modelops.errors import CheckpointError

Shape = tuple[int, ...]
_WHOLE = "copy the whole folder of the step, with the files of all ranks of one save"


@dataclass(frozen=True)
class ModelStates:
    """A ``*_model_states.pt``: which parameters there are, and what is not divided."""

    path: Path
    root: Mapping[Any, Any]
    module: dict[str, TensorStub]
    groups: tuple[dict[str, Shape], ...]
    """Shapes of the trained parameters, in the order of their partitions."""
    frozen: dict[str, Shape]
    fragments: dict[str, TensorStub]
    buffers: tuple[str, ...]
    shared: dict[str, str]
    """Name → the name of the same parameter under which it was trained."""


@dataclass(frozen=True)
class Partition:
    """A rank's flat share of the fp32 weights, one run for each group of parameters."""

    path: Path
    rank: int
    runs: tuple[TensorStub, ...]
    paddings: tuple[int, ...] = ()
    """How many elements less than the others a rank's run has because padding was left out."""


@dataclass(frozen=True)
class States:
    """One saved step: rank 0's model states first; no partitions where ZeRO was off (stage 0)."""

    stage: int
    models: tuple[ModelStates, ...]
    partitions: tuple[Partition, ...]
    alignments: tuple[tuple[int, ...], ...] | None = None
    """Elements left free behind each parameter of each group (stages 1 and 2)."""
    globals: dict[str, None] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """How many ranks the weights are divided over."""
        return max(1, len(self.partitions))


def read_states(layout: Layout) -> States:
    """Read all files as data, and make sure that one run of all ranks wrote them.

    Raises:
        UnsafeInputError: a file names more than DeepSpeed does.
        CheckpointError: one is damaged or missing, or they do not belong together; names it.
    """
    named: dict[str, None] = {}
    models = []
    for _, path in sorted(layout.model.items()):
        scanned = _scan(path, frozenset(), named)
        models.append(_model_states(path, scanned))
    if not layout.optim:
        return _undivided(layout, models, named)
    stages: dict[int, Path] = {}
    worlds: dict[int, Path] = {}
    partitions = []
    alignments: tuple[tuple[int, ...], ...] | None = None
    for rank, path in sorted(layout.optim.items()):
        state = _mapping(_scan(path, INERT, named), "optimizer_state_dict", path)
        stages.setdefault(_stage(state, path), path)
        worlds.setdefault(_world(state, path), path)
        partitions.append(_partition(state, rank, path))
        if rank == 0:
            alignments = _alignments(state, path)
    _one("ZeRO stage", stages)
    _one("number of ranks", worlds)
    stage, world = next(iter(stages)), next(iter(worlds))
    _all_ranks(layout, layout.optim, world)
    if stage == 3:
        _all_ranks(layout, layout.model, world)
    _same_parameters(models)
    return States(stage, tuple(models), tuple(partitions), alignments, named)


def _scan(path: Path, inert: frozenset[str], named: dict[str, None]) -> Mapping[Any, Any]:
    scanned = torch_file.scan(path, inert)
    if scanned.fault:
        raise scanned.fault
    named |= scanned.globals
    if scanned.kind != "zip" or not isinstance(scanned.root, dict):
        raise CheckpointError(f"{path} is no file of states that DeepSpeed saved", hint=_WHOLE)
    return scanned.root


def _model_states(path: Path, root: Mapping[Any, Any]) -> ModelStates:
    module = _mapping(root, "module", path)
    groups = root.get("param_shapes") or []
    groups = groups if isinstance(groups, list) else [groups]
    shapes = tuple(_shapes(group, path) for group in groups)
    buffers = root.get("buffer_names") or []
    shared = root.get("shared_params") or {}
    if not isinstance(buffers, list) or not isinstance(shared, dict):
        raise CheckpointError(f"{path} does not say its buffers and shared parameters as known")
    return ModelStates(
        path=path,
        root=root,
        module={
            name: value
            for name, value in module.items()
            if isinstance(name, str) and isinstance(value, TensorStub)
        },
        groups=shapes,
        frozen=_shapes(root.get("frozen_param_shapes") or {}, path),
        fragments={
            name: value
            for name, value in dict(root.get("frozen_param_fragments") or {}).items()
            if isinstance(name, str) and isinstance(value, TensorStub)
        },
        buffers=tuple(name for name in buffers if isinstance(name, str)),
        shared={
            name: other
            for name, other in shared.items()
            if isinstance(name, str) and isinstance(other, str)
        },
    )


def _shapes(value: Any, path: Path) -> dict[str, Shape]:
    found: dict[str, Shape] = {}
    for name, shape in dict(value).items() if isinstance(value, dict) else ():
        sizes = shape if isinstance(shape, tuple) else ()
        if not (
            isinstance(name, str)
            and isinstance(shape, tuple)
            and all(type(n) is int and n >= 0 for n in sizes)
            and math.prod(sizes) < 1 << 62
        ):
            raise CheckpointError(f"{path} does not say a shape for the parameter {str(name)!r}")
        found[name] = shape
    return found


def _mapping(root: Mapping[Any, Any], key: str, path: Path) -> dict[Any, Any]:
    value = root.get(key)
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} has no {key!r}, as DeepSpeed writes it", hint=_WHOLE)
    return value


def _stage(state: Mapping[Any, Any], path: Path) -> int:
    value = state.get("zero_stage")
    stage = value.args[0] if isinstance(value, Record) and len(value.args) == 1 else value
    if type(stage) is not int or stage not in (1, 2, 3):
        raise CheckpointError(f"{path} does not say its ZeRO stage: {str(stage)[:100]}")
    return stage


def _world(state: Mapping[Any, Any], path: Path) -> int:
    count = state.get("partition_count")
    counts = set(count) if isinstance(count, list) else {count}
    if len(counts) != 1 or type(world := counts.pop()) is not int or world < 1:
        raise CheckpointError(
            f"{path} is divided over {str(count)[:100]} ranks, group by group, as a mixture of "
            "experts is; that is not read"
        )
    return world


def _partition(state: Mapping[Any, Any], rank: int, path: Path) -> Partition:
    runs = state.get("single_partition_of_fp32_groups", state.get("fp32_flat_groups"))
    if not isinstance(runs, list) or not runs:
        raise CheckpointError(
            f"{path} holds no fp32 partitions of the weights",
            hint="save without excluding the optimizer's state",
        )
    for number, run in enumerate(runs):
        if not isinstance(run, TensorStub) or len(run.shape) != 1 or run.stride not in ((1,), ()):
            raise CheckpointError(f"{path}: the partition of group {number} is no flat tensor")
    paddings = state.get("group_paddings")
    known = isinstance(paddings, list) and all(type(n) is int and n >= 0 for n in paddings)
    return Partition(path, rank, tuple(runs), tuple(paddings) if known and paddings else ())


def _alignments(state: Mapping[Any, Any], path: Path) -> tuple[tuple[int, ...], ...] | None:
    value = state.get("param_alignment_paddings")
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        isinstance(group, list) and all(type(n) is int and n >= 0 for n in group) for group in value
    ):
        raise CheckpointError(f"{path}: param_alignment_paddings are no lists of sizes")
    return tuple(tuple(group) for group in value)


def _undivided(layout: Layout, models: list[ModelStates], named: dict[str, None]) -> States:
    first = models[0]
    stage = dict(first.root.get("ds_config") or {}).get("zero_optimization")
    stage = stage.get("stage") if isinstance(stage, dict) else 0
    if stage in (1, 2, 3) or len(models) > 1:
        raise CheckpointError(
            f"{layout.folder} holds no *_optim_states.pt, which hold the weights of ZeRO-{stage}",
            hint=_WHOLE,
        )
    return States(0, (first,), (), None, named)


def _one(what: str, said: dict[int, Path]) -> None:
    if len(said) > 1:
        told = ", ".join(f"{value} in {path.name}" for value, path in said.items())
        raise CheckpointError(
            f"the files of {next(iter(said.values())).parent} do not agree on the {what}: {told}",
            hint=_WHOLE,
        )


def _all_ranks(layout: Layout, files: dict[int, Path], world: int) -> None:
    like = next(iter(files.values()))
    for rank in range(world):
        if rank not in files:
            raise CheckpointError(
                f"{layout.missing(like, rank)} is missing from {layout.folder}: {world} ranks "
                f"saved, {len(files)} of their files are here",
                hint=_WHOLE,
            )
    if len(files) > world:
        raise CheckpointError(
            f"{files[max(files)]} is of no rank of this save, which {world} ranks wrote",
            hint="remove what another run left in the folder",
        )


def _same_parameters(models: list[ModelStates]) -> None:
    first, *rest = models
    for other in rest:
        if (other.groups, other.frozen) == (first.groups, first.frozen):
            continue
        flat = [
            {n: s for group in (*m.groups, m.frozen) for n, s in group.items()}
            for m in (first, other)
        ]
        name = min(
            (n for n in {**flat[0], **flat[1]} if flat[0].get(n) != flat[1].get(n)), default=""
        )
        raise CheckpointError(
            f"{other.path} and {first.path.name} do not hold the same parameters"
            + (f", such as {name!r}" if name else ""),
            hint=_WHOLE,
        )
