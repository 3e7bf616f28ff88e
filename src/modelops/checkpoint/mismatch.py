"""Says what of a checkpoint does not fit a model."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from modelops.checkpoint.checkpoint import Checkpoint
from modelops.checkpoint.naming import Matching
from modelops.checkpoint.slots import Slot
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor

SHOWN = 10


def refuse(
    found: Matching,
    tensors: Mapping[str, Tensor],
    slots: Mapping[str, Slot],
    checkpoint: Checkpoint,
) -> None:
    """Raise where anything does not fit: the first ten of each kind, and how many.

    Raises:
        CheckpointError: it does not fit.
    """
    if not found.faults:
        return
    lines = []
    if found.missing:
        lines.append(_line("missing from the checkpoint", found.missing, found.unexpected))
    if found.unexpected:
        free = found.missing or tuple(slots)
        lines.append(_line("not in the model", found.unexpected, free))
    if found.misshapen:
        shown = [_shapes(old, found.used[old], tensors, slots) for old in found.misshapen[:SHOWN]]
        lines.append(_count("of another shape or kind", len(found.misshapen)) + "; ".join(shown))
    raise CheckpointError(
        f"{checkpoint.name} does not fit the model:\n  " + "\n  ".join(lines),
        hint="check that the model is built with the arguments it was trained with",
    )


def _count(what: str, count: int) -> str:
    first = f", the first {SHOWN}" if count > SHOWN else ""
    return f"{count} tensor{'s' if count != 1 else ''} {what}{first}: "


def _line(what: str, names: Sequence[str], others: Sequence[str]) -> str:
    pool = list(others)[:2000]  # the nearest of more would take long to find
    shown = []
    for name in names[:SHOWN]:
        near = difflib.get_close_matches(name, pool, n=1, cutoff=0.75)
        shown.append(f"{name} (near {near[0]})" if near else name)
    return _count(what, len(names)) + ", ".join(shown)


def _shapes(old: str, name: str, tensors: Mapping[str, Tensor], slots: Mapping[str, Slot]) -> str:
    return f"{name} is {_of(tensors[old])}, the model wants {_of(slots[name].value)}"


def _of(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
