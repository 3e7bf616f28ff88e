"""Weights in several files, named by an index."""

from __future__ import annotations

from pathlib import Path

from modelops.checkpoint import containers, safetensors_file, torch_file
from modelops.checkpoint.documents import read_json
from modelops.checkpoint.paths import inside, open_regular
from modelops.checkpoint.sniff import sniff
from modelops.checkpoint.standins import TensorStub
from modelops.errors import CheckpointError, UnsafeInputError


def read_index(folder: Path, name: str) -> dict[str, Path]:
    """Return the shards that an index names, each vetted and complete.

    Raises:
        UnsafeInputError: a shard lies outside the folder.
        CheckpointError: a shard is missing, or index and shards do not hold the same tensors.
    """
    index = read_json(inside(folder, name))
    weight_map = index.get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(v, str) for v in weight_map.values())
    ):
        raise CheckpointError(f"{folder / name} has no weight_map from tensors to files")
    shards: dict[str, Path] = {}
    for shard in sorted(set(weight_map.values())):
        try:
            shards[shard] = inside(folder, shard)
        except UnsafeInputError as error:
            raise UnsafeInputError(
                f"{name} names the shard {shard!r}: {error.message}", hint=error.hint
            ) from error
        except CheckpointError as error:
            raise CheckpointError(
                f"{name} names the shard {shard!r}: {error.message}",
                hint="fetch the checkpoint again, with all its shards",
            ) from error
    held: dict[str, str] = {}
    for shard, path in shards.items():
        for tensor in names_in(path):
            if tensor in held:
                raise CheckpointError(
                    f"tensor {tensor!r} stands in two shards, {held[tensor]!r} and {shard!r}"
                )
            held[tensor] = shard
    _compare(name, weight_map, held)
    return shards


def names_in(path: Path) -> list[str]:
    """Return the names of the tensors of one weight file.

    Raises:
        UnsafeInputError: it is a torch file that asks for more than plain weights.
        CheckpointError: it is damaged.
    """
    with open_regular(path) as file:
        if sniff(file) == "safetensors":
            return list(safetensors_file.check_header(file, path)[0])
        scanned = torch_file.scan_open(file, path)
    if scanned.fault:
        raise scanned.fault
    held = containers.select(scanned.root, ()) if isinstance(scanned.root, dict) else {}
    return [k for k, v in held.items() if isinstance(k, str) and isinstance(v, TensorStub)]


def _compare(name: str, weight_map: dict[str, str], held: dict[str, str]) -> None:
    for tensor, shard in weight_map.items():
        if tensor not in held:
            raise CheckpointError(
                f"{name} says that {tensor!r} is in the shard {shard!r}, which does not hold it"
            )
        if held[tensor] != shard:
            raise CheckpointError(
                f"{name} says that {tensor!r} is in {shard!r}, but it is in {held[tensor]!r}"
            )
    extra = [t for t in held if t not in weight_map]
    if extra:
        raise CheckpointError(
            f"the shard {held[extra[0]]!r} holds {len(extra)} tensors that {name} does not name, "
            f"such as {extra[0]!r}"
        )
