"""Where in a training dict the weights are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.errors import CheckpointError

MAX_DEPTH = 3
# Words that begin a part of the name of training state, as in optimizer_states or amp.grad_scaler.
_NOT_WEIGHTS = re.compile(
    r"(?:^|[\W_])(?:optims?(?:[\W_]|$)|optimizer|sched(?:[\W_]|$)|(?:lr_?)?scheduler|(?:grad)?scaler|"
    r"rng|exp_avg(?:_sq)?$|grads?$|gradients?$)",
    re.IGNORECASE,
)
Path_ = tuple[str, ...]


@dataclass(frozen=True)
class Container:
    """A mapping that holds tensors: its path of keys, their number, and the keys left aside."""

    path: Path_
    tensors: int
    skipped: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The path as ``--weights-key`` takes it."""
        return ".".join(self.path)


def is_training_state(name: str) -> bool:
    """Whether a name is that of an optimizer's, scheduler's or random state."""
    return _NOT_WEIGHTS.search(name) is not None


def find_containers(root: Any, is_tensor: Callable[[Any], bool]) -> list[Container]:
    """Return the state dicts at or under ``root``, at most three keys deep.

    A mapping is one when it holds tensors and besides them only plain values (a step counter), or
    when nine of ten values are tensors. Optimizer, scheduler and random states are none. Mappings
    of nothing but single numbers (metrics) count only where there is nothing else. A mapping that
    stands in two places counts once.
    """
    found = list(_search(root, (), is_tensor, set()))
    weights = [c for c, only_numbers in found if not only_numbers]
    return weights or [c for c, _ in found]


def choose(
    root: Any, is_tensor: Callable[[Any], bool], weights_key: str | None, path: Path
) -> Container:
    """Return the one state dict to load: that at ``weights_key``, or the only one there is.

    Raises:
        CheckpointError: there is none, or several, or none at the key; lists what is there.
    """
    found = find_containers(root, is_tensor)
    if weights_key is not None:
        named = _at(root, weights_key, is_tensor)
        if named is None:
            raise CheckpointError(
                f"{path} holds no state dict under {weights_key!r}; {_listing(found)}",
                hint="name one of these with --weights-key",
            )
        return named
    if not found and _only_training_state(root):
        raise CheckpointError(
            f"{path} holds no state dict, only the state of an optimizer or a schedule; "
            f"{_top_keys(root)}",
            hint="give the file that holds the model's weights, which trainers save beside it",
        )
    if not found:
        raise CheckpointError(
            f"{path} holds no state dict: no mapping of names to tensors within {MAX_DEPTH} keys; "
            f"{_top_keys(root)}",
            hint="save the model's weights: torch.save(model.state_dict(), …)",
        )
    if len(found) > 1:
        raise CheckpointError(
            f"{path} holds {len(found)} state dicts: {_listing(found)}",
            hint=f"choose one, such as --weights-key {max(c.key for c in found)}",
        )
    return found[0]


def select(root: Any, path: Path_) -> dict[Any, Any]:
    """Return the mapping at a container's path."""
    value = root
    for key in path:
        value = dict.__getitem__(value, _real_key(value, key))
    return dict(dict.items(value))


def _search(
    value: Any, path: Path_, is_tensor: Callable[[Any], bool], seen: set[int]
) -> list[tuple[Container, bool]]:
    if not isinstance(value, dict) or len(path) > MAX_DEPTH or id(value) in seen:
        return []
    seen.add(id(value))
    items = dict(dict.items(value))
    if {"state", "param_groups"} <= items.keys():
        return []
    container = _container(items, path, is_tensor)
    if container is not None:
        tensors = [v for v in items.values() if is_tensor(v)]
        return [(container, all(len(t.shape) == 0 for t in tensors))]
    found: list[tuple[Container, bool]] = []
    for key, child in items.items():
        if not is_training_state(str(key)):
            found += _search(child, (*path, str(key)), is_tensor, seen)
    own = {k for k, v in items.items() if isinstance(k, str) and is_tensor(v)}
    if any(own & select(value, c.path[len(path) :]).keys() for c, _ in found):
        # the same names here and further in: two versions of one model
        found.append((Container(path, len(own)), False))
    return found


def _container(
    items: dict[Any, Any], path: Path_, is_tensor: Callable[[Any], bool]
) -> Container | None:
    names = [k for k, v in items.items() if isinstance(k, str) and is_tensor(v)]
    if not names:
        return None
    others = {k: v for k, v in items.items() if not (isinstance(k, str) and is_tensor(v))}
    plain = all(not isinstance(v, dict | list | tuple) for v in others.values())
    if not plain and len(names) < 0.9 * len(items):
        return None
    return Container(path, len(names), tuple(str(k) for k in others))


def _at(root: Any, weights_key: str, is_tensor: Callable[[Any], bool]) -> Container | None:
    """Return the mapping at a dotted path, whose keys may themselves hold dots."""
    pending: list[tuple[Any, Path_]] = [(root, ())]
    while pending:
        value, path = pending.pop()
        if not isinstance(value, dict) or len(path) > MAX_DEPTH + 2:
            continue
        if path and ".".join(path) == weights_key:
            names = [k for k, v in dict.items(value) if isinstance(k, str) and is_tensor(v)]
            others = tuple(str(k) for k, v in dict.items(value) if not is_tensor(v))
            return Container(path, len(names), others) if names else None
        for key, child in dict.items(value):
            at = (*path, str(key))
            if (weights_key + ".").startswith(".".join(at) + "."):
                pending.append((child, at))
    return None


def _real_key(value: dict[Any, Any], key: str) -> Any:
    return key if key in value else next(k for k in dict.keys(value) if str(k) == key)


def _only_training_state(root: Any) -> bool:
    if not isinstance(root, dict):
        return False
    keys = [str(key) for key in dict.keys(root)]
    return {"state", "param_groups"} <= set(keys) or any(map(is_training_state, keys))


def _listing(found: list[Container]) -> str:
    if not found:
        return "it holds none at all"
    listed = ", ".join(
        f"{c.key[:200] or '(the top level)'} ({c.tensors} tensors)" for c in found[:10]
    )
    return listed + (f" and {len(found) - 10} more" if len(found) > 10 else "")


def _top_keys(root: Any) -> str:
    if not isinstance(root, dict):
        return f"its content is of the kind {type(root).__name__}"
    keys = [str(k)[:60] for k in list(dict.keys(root))[:10]]
    return f"its top-level keys are {', '.join(keys)}" if keys else "it is empty"
