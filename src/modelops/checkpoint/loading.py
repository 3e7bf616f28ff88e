"""Reads vetted weight files into tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modelops.checkpoint import containers, safetensors_file, torch_file
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.sniff import sniff
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor


def load_files(files: Sequence[Path], weights_key: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the tensors of all files under their own names, on the CPU, memory-mapped.

    Raises:
        CheckpointError: a file is damaged, or two of them hold one name.
        UnsafeInputError: a file is not plain weights.
    """
    import torch

    found: dict[str, Tensor] = {}
    for path in files:
        with open_regular(path) as file:
            kind = sniff(file)
        if kind == "safetensors":
            tensors = dict(safetensors_file.load(path))
        else:
            held = containers.select(torch_file.load(path), weights_key)
            # detach: a parameter's extra attributes stay behind
            tensors = {
                k: v.detach()
                for k, v in held.items()
                if isinstance(k, str) and isinstance(v, torch.Tensor)
            }
        for name, tensor in tensors.items():
            if name in found:
                raise CheckpointError(f"tensor {name!r} stands in two files, one of them {path}")
            found[name] = tensor
    return found
