"""Puts a checkpoint's tensors into a model: every name matched, or nothing is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelops.checkpoint import mismatch
from modelops.checkpoint.checkpoint import Checkpoint
from modelops.checkpoint.finite import check_finite
from modelops.checkpoint.naming import find_matching
from modelops.checkpoint.slots import Slot, slots_of
from modelops.errors import CheckpointError, UsageError

if TYPE_CHECKING:
    from torch import Tensor, nn


def load_weights(
    model: nn.Module, checkpoint: Checkpoint, *, unused_ok: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Load a checkpoint into ``model``, strictly, and return what is worth saying about it.

    Parameters and buffers become the checkpoint's own memory-mapped tensors, in its dtype, on the
    CPU; tied parameters stay tied. ``unused_ok`` are shell patterns of names that the checkpoint
    may hold and the model lack, such as ``"pooler.*"``.

    Raises:
        CheckpointError: a name is missing or unexpected, a shape differs, tied weights differ, or
            a value is NaN or infinite. The model is then as it was.
        UsageError: the model keeps a buffer on the meta device that no checkpoint holds.
    """
    tensors = checkpoint.raw_tensors()
    slots = slots_of(model)
    found = find_matching(model, tensors, slots, unused_ok)
    mismatch.refuse(found, tensors, slots, checkpoint)
    chosen = {new: tensors[old] for old, new in found.used.items()}
    notes = [*found.notes, *_check_ties(slots, chosen)]
    check_finite(chosen, slots, checkpoint)
    _refuse_meta(slots, chosen)
    _assign(slots, chosen)
    return tuple(dict.fromkeys(notes))


def _groups(slots: dict[str, Slot]) -> list[list[str]]:
    """Return the names of each parameter or buffer; more than one where it is tied."""
    groups: dict[int, list[str]] = {}
    for name, slot in slots.items():
        groups.setdefault(id(slot.value), []).append(name)
    return list(groups.values())


def _check_ties(slots: dict[str, Slot], chosen: dict[str, Tensor]) -> list[str]:
    import torch

    notes = []
    for names in _groups(slots):
        held = [name for name in names if name in chosen]
        for other in held[1:]:
            if not torch.equal(chosen[held[0]], chosen[other]):
                raise CheckpointError(
                    f"the model ties {held[0]!r} and {other!r} to one weight, but the checkpoint "
                    "holds different values for them",
                    hint="build the model without the tie (tie_word_embeddings=False)",
                )
        if held and len(held) < len(names):
            absent = ", ".join(name for name in names if name not in chosen)
            notes.append(f"{absent} is tied to {held[0]}, which the checkpoint holds")
    return notes


def _refuse_meta(slots: dict[str, Slot], chosen: dict[str, Tensor]) -> None:
    filled = {id(slots[name].value) for name in chosen}
    empty = [n for n, s in slots.items() if s.value.is_meta and id(s.value) not in filled]
    if empty:
        raise UsageError(
            f"the model keeps {', '.join(empty[:5])} on the meta device, and the checkpoint does "
            "not hold it",
            hint="build the model on the CPU: the memory of weights that are replaced is not used",
        )


def _assign(slots: dict[str, Slot], chosen: dict[str, Tensor]) -> None:
    from torch import nn

    for names in _groups(slots):
        held = next((name for name in names if name in chosen), None)
        if held is None:
            continue
        value: Tensor = chosen[held]
        old = slots[held].value
        if isinstance(old, nn.Parameter):
            value = nn.Parameter(value, requires_grad=old.requires_grad)
        for name in names:
            # setattr, not the dict behind it: recurrent layers keep a second list of weights
            setattr(slots[name].module, slots[name].leaf, value)
