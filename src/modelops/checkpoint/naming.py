"""Which of a checkpoint's names is which of a model's: candidates tried in order, never mixed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from modelops.checkpoint.keys import Renaming, shared_prefix, strip_prefix, strip_wrappers
from modelops.checkpoint.slots import Slot
from modelops.errors import CheckpointError

if TYPE_CHECKING:
    from torch import Tensor, nn

# Buffers that older releases of a library saved and newer ones compute: not weights.
_COMPUTED = ("position_ids", "rotary_emb.inv_freq", "masked_bias", "_extra_state", "n_averaged")
# Buffers whose start value is right where an older file does not have them.
_DEFAULTED = ("num_batches_tracked", "position_ids", "inv_freq", "token_type_ids")
# Old names of the same tensors, the first by TensorFlow's habit, the others before torch 2.
_LEGACY = (
    ("LayerNorm.gamma", "LayerNorm.weight"),
    ("LayerNorm.beta", "LayerNorm.bias"),
    ("weight_g", "parametrizations.weight.original0"),
    ("weight_v", "parametrizations.weight.original1"),
)


@dataclass(frozen=True)
class Matching:
    """``used`` maps the file's names to the model's; the rest is what did not fit."""

    used: dict[str, str]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    misshapen: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def faults(self) -> int:
        """How many names or shapes do not fit."""
        return len(self.missing) + len(self.unexpected) + len(self.misshapen)


def find_matching(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    slots: Mapping[str, Slot],
    unused_ok: tuple[str, ...],
) -> Matching:
    """Return the first way of naming that fits entirely, else the one that fits best.

    Raises:
        CheckpointError: none fits, and one of them would make one key of two.
    """
    best: Matching | None = None
    for renaming in _candidates(model, list(tensors), slots):
        found = _match(model, renaming, tensors, slots, unused_ok)
        if found.faults == 0:
            return found
        if best is None or found.faults < best.faults:
            best = found
    strip_wrappers(list(tensors), everywhere=True)  # raises on a collision, the better account
    if best is None:
        raise CheckpointError("the checkpoint holds no tensors")
    return best


def _candidates(
    model: nn.Module, names: list[str], slots: Mapping[str, Slot]
) -> Iterator[Renaming]:
    identity = Renaming({name: name for name in names})
    tried = [identity]
    for everywhere in (False, True):
        try:
            renaming = strip_wrappers(names, everywhere=everywhere)
        except CheckpointError:
            continue
        if renaming.renamed not in [t.renamed for t in tried]:
            tried.append(renaming)
    yield from tried
    base = getattr(model, "base_model_prefix", "")
    base = f"{base}." if isinstance(base, str) and base else ""
    for renaming in tried:
        yield from _without_shared(renaming)
        if base:
            yield from _around_base(renaming, base, slots)
        outer = shared_prefix(slots)
        if outer:
            yield Renaming(
                {old: outer + new for old, new in renaming.renamed.items()},
                (*renaming.notes, f'added the prefix "{outer}"'),
            )


def _without_shared(renaming: Renaming) -> Iterator[Renaming]:
    while prefix := shared_prefix(renaming.renamed.values()):
        renaming = strip_prefix(renaming, prefix)
        yield renaming


def _around_base(renaming: Renaming, base: str, slots: Mapping[str, Slot]) -> Iterator[Renaming]:
    """Between a bare encoder and the same encoder with a head on it (transformers)."""
    new = renaming.renamed
    if any(name.startswith(base) for name in slots):
        yield Renaming(
            {old: name if name in slots else base + name for old, name in new.items()},
            (*renaming.notes, f'added the prefix "{base}"'),
        )
        return
    inside = {old: name.removeprefix(base) for old, name in new.items() if name.startswith(base)}
    head = [name for name in new.values() if not name.startswith(base)]
    if inside:
        notes = [f'stripped the prefix "{base}" from {len(inside)} keys']
        if head:
            notes.append(
                f"left out {len(head)} tensors of a head that this model has not: "
                + ", ".join(head[:5])
                + (" …" if len(head) > 5 else "")
            )
        yield Renaming(inside, (*renaming.notes, *notes))


def _match(
    model: nn.Module,
    renaming: Renaming,
    tensors: Mapping[str, Tensor],
    slots: Mapping[str, Slot],
    unused_ok: tuple[str, ...],
) -> Matching:
    used: dict[str, str] = {}
    unexpected: list[str] = []
    notes = [*renaming.notes]
    computed: list[str] = []
    unused: list[str] = []
    taken: set[str] = set()
    for old, name in renaming.renamed.items():
        target = _target(name, slots)
        if target is not None and target not in taken:
            used[old] = target
            taken.add(target)
        elif any(fnmatchcase(name, pattern) for pattern in unused_ok):
            unused.append(name)
        elif _is_computed(name, tensors[old], model):
            computed.append(name)
        else:
            unexpected.append(name)
    renamed = sum(1 for old, name in used.items() if renaming.renamed[old] != name)
    if renamed:
        notes.append(f"read {renamed} keys of an older naming")
    if unused:
        notes.append(f"left out {len(unused)} tensors, as allowed: {', '.join(unused[:5])}")
    if computed:
        notes.append(f"left out buffers that are computed: {', '.join(computed[:5])}")
    missing, defaulted = _missing(slots, taken)
    if defaulted:
        notes.append(f"kept the start value of: {', '.join(defaulted[:5])}")
    misshapen = tuple(old for old, name in used.items() if not fits(tensors[old], slots[name]))
    return Matching(used, tuple(missing), tuple(unexpected), misshapen, tuple(notes))


def fits(tensor: Tensor, slot: Slot) -> bool:
    """Whether a tensor may take a slot: the same shape, and a dtype of the same kind."""
    return tensor.shape == slot.value.shape and _kind(tensor) == _kind(slot.value)


def _kind(tensor: Tensor) -> str:
    if tensor.is_floating_point():
        return "float"
    return "complex" if tensor.is_complex() else str(tensor.dtype)


def _target(name: str, slots: Mapping[str, Slot]) -> str | None:
    if name in slots:
        return name if slots[name].persistent else None
    for old, new in _LEGACY:
        if name == old or name.endswith("." + old):
            renamed = name.removesuffix(old) + new
            if renamed in slots:
                return renamed
    return None


def _is_computed(name: str, tensor: Tensor, model: nn.Module) -> bool:
    if any(name == tail or name.endswith("." + tail) for tail in _COMPUTED):
        return True
    if name.endswith(("attn.bias", "attention.bias")) and tensor.dim() == 4:
        return True  # the causal mask of older GPT checkpoints; a real bias has one dim
    patterns = getattr(model, "_keys_to_ignore_on_load_unexpected", None) or ()
    return any(re.search(pattern, name) for pattern in patterns)


def _missing(slots: Mapping[str, Slot], taken: set[str]) -> tuple[list[str], list[str]]:
    filled = {id(slots[name].value) for name in taken}
    missing: list[str] = []
    defaulted: list[str] = []
    for name, slot in slots.items():
        if not slot.persistent or id(slot.value) in filled:
            continue
        computed = not slot.is_parameter and name.rsplit(".", 1)[-1] in _DEFAULTED
        (defaulted if computed else missing).append(name)
    return missing, defaulted
