"""Finds NaN and infinite weights in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelops.checkpoint.checkpoint import Checkpoint
from modelops.checkpoint.slots import Slot
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

_CHUNK = 1 << 24


def check_finite(
    tensors: dict[str, Tensor], slots: dict[str, Slot], checkpoint: Checkpoint
) -> None:
    """Refuse NaN anywhere and infinities in weights.

    −inf in a buffer passes: additive attention masks are made of it.

    Raises:
        CheckpointError: names the first ten tensors, and how many of their values are bad.
    """
    bad = {}
    for name, tensor in tensors.items():
        count = count_bad(tensor, minus_infinity_ok=not slots[name].is_parameter)
        if count:
            bad[name] = f"{name} ({count} of {tensor.numel()} values)"
    if bad:
        more = f" and {len(bad) - 10} more" if len(bad) > 10 else ""
        raise CheckpointError(
            f"{checkpoint.name}: {len(bad)} tensors hold NaN or infinite values: "
            f"{', '.join(list(bad.values())[:10])}{more}",
            hint="take an earlier checkpoint: training had diverged, or the file is damaged",
        )


def count_bad(tensor: Tensor, *, minus_infinity_ok: bool = False) -> int:
    """Count the values that are NaN or infinite, a chunk at a time."""
    import torch

    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0
    count = 0
    # a view where the layout allows, so that a mapped file is read but not copied
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        values = chunk.float() if chunk.element_size() == 1 else chunk
        bad = ~torch.isfinite(values)
        if minus_infinity_ok and not values.is_complex():
            bad &= ~torch.isneginf(values)
        count += int(bad.sum())
    return count
