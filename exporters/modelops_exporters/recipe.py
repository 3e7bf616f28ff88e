"""Recipes: a Python file of the user's with ``model()`` and ``inputs(**dims)``."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

from modelops.artifact.manifest import Tolerance
from modelops.checkpoint import Checkpoint, load_weights
from modelops.errors import ExportError, InputError, UsageError
from modelops.parity.inputs import Arrays, example_sizes
from modelops.requests import ExportRequest
from modelops.signature import DEFAULT_BATCH, DEFAULT_DIM, DimRange, TensorSpec
from modelops_exporters.calling import FlatModel, nested_arguments
from modelops_exporters.factory import called, specs_of
from modelops_exporters.prepared import Prepared, source_of
from modelops_exporters.tensors import to_numpy
from modelops_exporters.user_code import user_line


def prepare(checkpoint: Checkpoint, request: ExportRequest) -> Prepared:
    """Run the recipe, load the checkpoint's weights, and learn the inputs by calling it.

    Which axis is which dim is seen, not declared: ``inputs`` is called at two sizes of each dim,
    and the axes that moved are that dim's.

    Raises:
        UsageError: the recipe lacks a part, or a part is of the wrong kind.
        InputError: the recipe raises.
        CheckpointError: the weights do not fit the model.
    """
    if request.recipe is None:
        raise UsageError("no recipe was given")
    recipe = _import(request.recipe)
    model = called(_function(recipe, "model", request.recipe), "model() of the recipe", {})
    training = model.training
    notes = list(load_weights(model, checkpoint))
    if training:
        notes.append("the model was in train() mode; it is exported in eval()")
    make = _function(recipe, "inputs", request.recipe)
    dims, assumed = _dims(recipe, make, request)
    notes += [f"range of {d} not given: {dims[d].min}..{dims[d].max} assumed" for d in assumed]
    sizes = example_sizes(dims)
    arguments, tensors = nested_arguments(model, _call(make, sizes))
    inputs = _symbolic(specs_of(arguments.names, tensors), model, make, dims, sizes)
    outputs = getattr(recipe, "outputs", ())

    def random(wanted: dict[str, int], padded: bool) -> Arrays:
        if padded:
            raise TypeError("a recipe's signature has no padding")
        rng = np.random.default_rng([request.seed, *wanted.values()])
        torch.manual_seed(int(rng.integers(2**31)))
        _, made = nested_arguments(model, _call(make, wanted))
        return {n: _varied(to_numpy(t), rng) for n, t in zip(arguments.names, made, strict=True)}

    return Prepared(
        model=FlatModel(model, arguments.rebuild).eval(),
        inputs=inputs,
        dims=dims,
        source=source_of(checkpoint, f"{request.recipe.name}:model"),
        source_bytes=sum(p.stat().st_size for p in checkpoint.files),
        default_name=checkpoint.name,
        output_names=request.output_names or _names(outputs),
        tolerance=_tolerance(getattr(recipe, "tolerance", None)),
        random=random,
        notes=[*checkpoint.notes, *notes],
    )


def _import(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"no recipe at {path}", hint="modelops init SOURCE writes one to edit")
    spec = importlib.util.spec_from_file_location("modelops_recipe", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path.name} is no Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        where = user_line(error)
        raise InputError(
            f"{path.name} raises {type(error).__name__}: {error}" + (f" ({where})" if where else "")
        ) from error
    return module


def _function(recipe: ModuleType, name: str, path: Path) -> Any:
    found = getattr(recipe, name, None)
    if not callable(found):
        raise UsageError(
            f"{path.name} defines no {name}()",
            hint="a recipe defines model() and inputs(**dims); modelops init SOURCE writes one",
        )
    return found


def _dims(
    recipe: ModuleType, make: Any, request: ExportRequest
) -> tuple[dict[str, DimRange], list[str]]:
    given: dict[str, DimRange] = {}
    declared = getattr(recipe, "dims", {})
    if not isinstance(declared, Mapping) or not all(
        isinstance(name, str) and name.isidentifier() for name in declared
    ):
        raise UsageError(f'dims of the recipe is {declared!r}, not {{"name": (min, max)}}')
    for name, value in declared.items():
        pair = (value, value) if isinstance(value, int) else value
        if not _is_range(pair):
            raise UsageError(f"dims[{name!r}] of the recipe is {value!r}, not (min, max)")
        given[str(name)] = DimRange(min=pair[0], max=pair[1])
    given |= request.dims
    named = [
        p.name for p in inspect.signature(make).parameters.values() if p.kind is not p.VAR_KEYWORD
    ]
    dims: dict[str, DimRange] = {}
    assumed = []
    for position, name in enumerate([*named, *(d for d in given if d not in named)]):
        if name not in given:
            assumed.append(name)
        low, high = DEFAULT_BATCH if position == 0 else DEFAULT_DIM
        dims[name] = given.get(name, DimRange(min=low, max=high))
    return dims, assumed


def _is_range(pair: Any) -> bool:
    return (
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and all(isinstance(v, int) and 0 < v < 2**31 for v in pair)
        and pair[0] <= pair[1]
    )


def _call(make: Any, sizes: Mapping[str, int]) -> Any:
    try:
        return make(**sizes)
    except Exception as error:
        where = user_line(error)
        raise InputError(
            f"inputs({', '.join(f'{k}={v}' for k, v in sizes.items())}) of the recipe raises "
            f"{type(error).__name__}: {error}" + (f" ({where})" if where else "")
        ) from error


def _symbolic(
    specs: tuple[TensorSpec, ...],
    model: torch.nn.Module,
    make: Any,
    dims: dict[str, DimRange],
    sizes: dict[str, int],
) -> tuple[TensorSpec, ...]:
    shapes: list[list[int | str]] = [list(t.shape) for t in specs]
    for dim, allowed in dims.items():
        other = allowed.max if allowed.max != sizes[dim] else allowed.min
        if other == sizes[dim]:
            continue
        near = min(sizes[dim] + 1, allowed.max) if sizes[dim] < allowed.max else other
        _, moved = nested_arguments(model, _call(make, {**sizes, dim: near}))
        used = False
        for spec, tensor, shape in zip(specs, moved, shapes, strict=True):
            if len(tensor.shape) != len(spec.shape):
                raise ExportError(f"the rank of {spec.name!r} depends on {dim}")
            for axis, (before, after) in enumerate(zip(spec.shape, tensor.shape, strict=True)):
                if before == after:
                    continue
                if (before, after) != (sizes[dim], near):
                    raise ExportError(
                        f"axis {axis} of {spec.name!r} is {before} at {dim}={sizes[dim]} and "
                        f"{after} at {dim}={near}; an axis must be the dim itself",
                        hint="make that size a dim of its own in inputs()",
                    )
                shape[axis] = dim
                used = True
        if not used:
            raise UsageError(f"no input's shape depends on dim {dim!r} of the recipe")
    return tuple(
        t.model_copy(update={"shape": tuple(s)}) for t, s in zip(specs, shapes, strict=True)
    )


def _varied(array: Any, rng: np.random.Generator) -> Any:
    """Replace a constant float tensor: what is all zeros would hide nearly every fault."""
    if array.size < 2 or not np.issubdtype(array.dtype, np.floating) or np.ptp(array) > 0:
        return array
    return rng.standard_normal(array.shape).astype(array.dtype)


def _names(outputs: Any) -> tuple[str, ...]:
    names = (outputs,) if isinstance(outputs, str) else outputs
    if not isinstance(names, tuple | list) or not all(isinstance(n, str) for n in names):
        raise UsageError(f"outputs of the recipe is {outputs!r}, not a list of names")
    return tuple(names)


def _tolerance(value: Any) -> Tolerance | None:
    if value is None:
        return None
    try:
        if isinstance(value, int | float):
            return Tolerance(atol=value, rtol=value, min_cosine=1 - max(1e-5, float(value)))
        return Tolerance(**{"min_cosine": 0.99999, "atol": 1e-4, "rtol": 1e-4, **value})
    except (TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"tolerance of the recipe is {value!r}",
            hint='a number, or {"atol": …, "rtol": …, "min_cosine": …}',
        ) from error
