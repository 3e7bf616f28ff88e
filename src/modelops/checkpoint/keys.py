"""The names of tensors: what wrappers put in front of them, and how that comes off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from modelops.errors import CheckpointError

# Segments that only a wrapper adds, wherever they stand: torch.compile, FSDP, activation
# checkpointing, DeepSpeed. "module" is DDP's, but a model may have a part of that name too: it
# counts as a wrapper only in the run of segments that every key begins with.
_INNER = frozenset(
    {
        "_orig_mod",
        "_fsdp_wrapped_module",
        "_checkpoint_wrapped_module",
        "_forward_module",
        "_fpw_module",
    }
)
_LEADING = _INNER | {"module"}
# What may stand between leading wrappers, as in model.module.…
_HOLDERS = frozenset({"model", "net", "network", "state_dict"})
# Counters of averaging wrappers, beside the wrapped module's keys.
_COUNTERS = frozenset({"n_averaged"})


@dataclass(frozen=True)
class Renaming:
    """Old name → new name, in the order of the file, and a note for each prefix taken off."""

    renamed: dict[str, str]
    notes: tuple[str, ...] = ()


def strip_wrappers(keys: Sequence[str], *, everywhere: bool = False) -> Renaming:
    """Take wrappers' segments off every key; ``everywhere`` takes ``module`` off inside too.

    Raises:
        CheckpointError: two keys become one.
    """
    counts: Counter[str] = Counter()
    kept = [k for k in keys if k not in _COUNTERS or len(keys) == 1]
    leading = _leading_wrappers(kept)
    inner = _LEADING if everywhere else _INNER
    renamed: dict[str, str] = {}
    for key in keys:
        parts = key.split(".")
        if key not in kept:
            renamed[key] = key
            continue
        left = []
        gone = set()
        for position, part in enumerate(parts):
            last = position == len(parts) - 1
            if not last and (position in leading or part in inner):
                gone.add(part)
            else:
                left.append(part)
        counts.update(gone)
        renamed[key] = ".".join(left)
    _no_collision(renamed)
    notes = tuple(
        f'stripped the prefix "{part}." from {_keys(n)}' for part, n in sorted(counts.items())
    )
    return Renaming(renamed, notes)


def strip_prefix(renaming: Renaming, prefix: str) -> Renaming:
    """Take ``prefix`` (with its dot) off every name that has it."""
    had = [new for new in renaming.renamed.values() if new.startswith(prefix)]
    renamed = {old: new.removeprefix(prefix) for old, new in renaming.renamed.items()}
    _no_collision(renamed)
    return Renaming(
        renamed, (*renaming.notes, f'stripped the prefix "{prefix}" from {_keys(len(had))}')
    )


def shared_prefix(names: Iterable[str]) -> str | None:
    """Return the first segment, with its dot, where all names share it and have more."""
    found: str | None = None
    for name in names:
        head, dot, _ = name.partition(".")
        if not dot or (found is not None and head + dot != found):
            return None
        found = head + dot
    return found


def prefixes(keys: Iterable[str]) -> dict[str, int]:
    """Count the keys under each first segment."""
    return dict(Counter(key.split(".", 1)[0] + "." for key in keys if "." in key))


def _leading_wrappers(keys: Sequence[str]) -> set[int]:
    """Return the positions, in the run that all keys begin with, that a wrapper added."""
    if not keys:
        return set()
    first, *rest = [key.split(".")[:-1] for key in keys]
    run = 0
    while run < len(first) and all(len(p) > run and p[run] == first[run] for p in rest):
        run += 1
    positions = set()
    for position, part in enumerate(first[:run]):
        if part in _LEADING:
            positions.add(position)
        elif part not in _HOLDERS:
            break
    return positions


def _no_collision(renamed: dict[str, str]) -> None:
    owners: dict[str, str] = {}
    for old, new in renamed.items():
        other = owners.setdefault(new, old)
        if other != old:
            raise CheckpointError(
                f"the keys {other!r} and {old!r} both become {new!r} when wrappers' prefixes are "
                "stripped: the checkpoint holds the weights twice",
                hint="save only one of them, by the unwrapped model's state_dict()",
            )


def _keys(count: int) -> str:
    return f"{count} key" + ("s" if count != 1 else "")
