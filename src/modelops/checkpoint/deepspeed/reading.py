"""Reads the pieces of weights, memory-mapped, straight from where torch.save put them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from modelops.checkpoint.deepspeed.join import Joined, Piece
from modelops.checkpoint.stored import StoredTensors

if TYPE_CHECKING:
    from torch import Tensor


def read(weights: Mapping[str, Joined]) -> dict[str, Tensor]:
    """Return the weights by name, whole; names that share a weight share its tensor.

    A weight that lies whole in one file stays there, memory-mapped; the others are copied
    together, one after the other.

    Raises:
        CheckpointError: a file is no longer what it was when it was checked.
    """
    import torch

    files: dict[Path, StoredTensors] = {}
    done: dict[int, Tensor] = {}

    def held(piece: Piece) -> Tensor:
        if piece.path not in files:
            files[piece.path] = StoredTensors(piece.path)
        return files[piece.path].tensor(piece.stub)

    for weight in weights.values():
        if id(weight) in done:
            continue
        dtype = getattr(torch, weight.dtype)
        if len(weight.pieces) == 1:
            value = held(weight.pieces[0]).reshape(weight.shape).to(dtype)
        else:
            value = torch.empty(weight.shape, dtype=dtype)
            flat, begin = value.view(-1), 0
            for piece in weight.pieces:
                part = held(piece)
                flat[begin : begin + part.numel()] = part
                begin += part.numel()
        done[id(weight)] = value
    return {name: done[id(weight)] for name, weight in weights.items()}
