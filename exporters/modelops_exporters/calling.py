"""How flat, named tensors become forward's arguments, and its result flat outputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch

from modelops.errors import ExportError, UsageError

Rebuild = Callable[[Sequence[torch.Tensor]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True)
class Arguments:
    """The flat names of forward's tensors, in order, and how to put them back into a call."""

    names: tuple[str, ...]
    rebuild: Rebuild


def named_arguments(model: torch.nn.Module, names: Sequence[str]) -> Arguments:
    """Map tensors called ``names`` to forward's arguments.

    By name where every name is an argument of forward; as one dict where forward takes a single
    argument and there are several names; by position otherwise.

    Raises:
        UsageError: the names fit in none of these ways.
    """
    parameters = _parameters(model)
    order = tuple(names)
    known = [p.name for p in parameters]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    required = [p.name for p in parameters if p.default is p.empty and p.kind not in _VARIADIC]
    if all(n in known for n in order) or (takes_any and set(required) <= set(order)):
        if missing := [p for p in required if p not in order]:
            raise UsageError(
                f"forward also needs {', '.join(missing)}",
                hint='give every input, in forward\'s order, with --input "name=dtype[dims]"',
            )
        return Arguments(order, lambda t: ((), dict(zip(order, t, strict=True))))
    if len(required) == 1 and len(order) > 1 and len(known) == 1 and not _takes_many(parameters):
        return Arguments(order, lambda t: ((dict(zip(order, t, strict=True)),), {}))
    for position, name in enumerate(order):
        if name in known and known.index(name) != position:
            raise UsageError(
                f"input {name!r} is argument {known.index(name) + 1} of forward, but was given "
                f"as number {position + 1}; forward takes {', '.join(known)}",
                hint="give the inputs in forward's order, or all by forward's names",
            )
    if not _takes_many(parameters) and not len(required) <= len(order) <= len(known):
        raise UsageError(
            f"{len(order)} inputs were given, but forward takes {', '.join(known) or 'none'}",
            hint='give every input, in forward\'s order, with --input "name=dtype[dims]"',
        )
    return Arguments(order, lambda t: (tuple(t), {}))


def nested_arguments(model: torch.nn.Module, example: Any) -> tuple[Arguments, list[torch.Tensor]]:
    """Map the structure that a recipe's ``inputs`` returned to forward's arguments.

    A dict whose keys are forward's arguments is passed by name, a tuple or list by position, a
    single tensor alone; dicts, tuples and lists inside are flattened, and their leaves named.

    Raises:
        ExportError: something in it is not a tensor, or two leaves get one name.
    """
    known = [p.name for p in _parameters(model)]
    if isinstance(example, torch.Tensor):
        example = (example,)
    paths: list[tuple[Any, ...]] = []
    leaves: list[torch.Tensor] = []
    for path, leaf in _walk(example, ()):
        if not isinstance(leaf, torch.Tensor):
            raise ExportError(
                f"inputs() of the recipe holds {type(leaf).__name__} at {list(path)}; "
                "only tensors can be inputs of an artifact",
                hint="bind constants in model(), for example with functools.partial",
            )
        paths.append(path)
        leaves.append(leaf)
    by_name = isinstance(example, Mapping) and all(key in known for key in example)
    if isinstance(example, Mapping) and not by_name and len(known) != 1:
        raw = [str(path[-1]) for path in paths]
        if any(len(path) != 1 for path in paths):
            raise ExportError(
                f"inputs() returns {', '.join(map(str, example))}; forward takes "
                f"{', '.join(known)}",
                hint="name the entries after forward's arguments",
            )
        return named_arguments(model, raw), leaves

    def rebuild(tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        flat = iter(tensors)
        filled = _fill(example, flat)
        if by_name:
            return (), dict(filled)
        return ((filled,), {}) if isinstance(example, Mapping) else (tuple(filled), {})

    return Arguments(_leaf_names(paths, known), rebuild), leaves


class FlatModel(torch.nn.Module):
    """A model that takes a flat sequence of tensors and returns a flat tuple of them."""

    def __init__(self, model: torch.nn.Module, rebuild: Rebuild) -> None:
        super().__init__()
        self.model = model
        self._rebuild = rebuild

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model and return its tensors in order."""
        return tuple(tensor for _, tensor in self.named_outputs(tensors))

    def named_outputs(self, tensors: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """Call the model and return its tensors with the names that its result gives them."""
        args, kwargs = self._rebuild(tensors)
        return flat_outputs(self.model(*args, **kwargs))


def flat_outputs(result: Any) -> list[tuple[str, torch.Tensor]]:
    """Flatten what forward returned; None is dropped.

    Raises:
        ExportError: something in it is not a tensor, or there is no tensor.
    """
    found: list[tuple[str, torch.Tensor]] = []
    paths = []
    for path, leaf in _walk(result, ()):
        if leaf is None:
            continue
        if not isinstance(leaf, torch.Tensor):
            raise ExportError(
                f"forward returns {type(leaf).__name__} at {list(path) or 'the top'}; an artifact "
                "returns tensors only",
                hint="wrap the model so that forward returns tensors, and name it in a recipe",
            )
        paths.append(path)
        found.append(("", leaf))
    if not found:
        raise ExportError("forward returns no tensor")
    if len(paths) == 1 and not any(isinstance(step, str) for step in paths[0]):
        return [("output", found[0][1])]
    heads = [path[0] for path in paths if path and isinstance(path[0], int)]
    names = _leaf_names(paths, [f"output_{i}" for i in range(max(heads, default=-1) + 1)])
    return [(name, tensor) for name, (_, tensor) in zip(names, found, strict=True)]


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _parameters(model: torch.nn.Module) -> list[inspect.Parameter]:
    return list(inspect.signature(model.forward).parameters.values())


def _takes_many(parameters: Sequence[inspect.Parameter]) -> bool:
    return any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _walk(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, (*path, str(key)))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for key, item in zip(value._fields, value, strict=True):
            yield from _walk(item, (*path, key))
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from _walk(item, (*path, index))
    elif is_dataclass(value) and not isinstance(value, type):
        for entry in fields(value):
            yield from _walk(getattr(value, entry.name), (*path, entry.name))
    else:
        yield path, value


def _fill(example: Any, flat: Iterator[torch.Tensor]) -> Any:
    if isinstance(example, Mapping):
        return {key: _fill(item, flat) for key, item in example.items()}
    if isinstance(example, tuple) and hasattr(example, "_fields"):
        return type(example)(*(_fill(item, flat) for item in example))
    if isinstance(example, tuple | list):
        return type(example)(_fill(item, flat) for item in example)
    return next(flat)


def _leaf_names(paths: Sequence[tuple[Any, ...]], known: Sequence[str]) -> tuple[str, ...]:
    def spelled(path: tuple[Any, ...]) -> str:
        head = path[0] if path else 0
        first = known[head] if isinstance(head, int) and head < len(known) else f"{head}"
        return ".".join([first, *(str(step) for step in path[1:])])

    short = [str(p[-1]) if p and isinstance(p[-1], str) else spelled(p) for p in paths]
    names = short if len(set(short)) == len(short) else [spelled(p) for p in paths]
    if len(set(names)) != len(names):
        raise ExportError(f"two tensors would get one name: {', '.join(names)}")
    return tuple(names)
