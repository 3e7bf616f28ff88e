"""Models from the user's own code: ``--model package.module:Factory`` with ``--input``."""

from __future__ import annotations

from typing import Any

import torch

from modelops.checkpoint import Checkpoint, load_weights
from modelops.errors import ExportError, InputError, UsageError
from modelops.requests import ExportRequest
from modelops.signature import TensorSpec, default_dims
from modelops_exporters.calling import FlatModel, named_arguments
from modelops_exporters.imported import imported
from modelops_exporters.prepared import Prepared, source_of
from modelops_exporters.user_code import user_line


def prepare(checkpoint: Checkpoint, request: ExportRequest) -> Prepared:
    """Build the model by its factory and load the checkpoint's weights into it.

    Raises:
        UsageError: the factory is not to be found, or the inputs do not fit its forward.
        InputError: the factory raises.
        CheckpointError: the weights do not fit the model.
    """
    if not request.model or not request.inputs:
        raise UsageError(
            f"{request.source} holds only weights",
            hint='add --model package.module:Factory and --input "name=dtype[dim,…]" for each '
            "input, or --recipe recipe.py (modelops init SOURCE writes one)",
        )
    model = build(request.model, request.model_args)
    training = model.training
    notes = list(load_weights(model, checkpoint))
    if training:
        notes.append("the model was in train() mode; it is exported in eval()")
    dims = default_dims(request.inputs) | request.dims
    notes += [
        f"range of {d} not given: {dims[d].min}..{dims[d].max} assumed"
        for d in default_dims(request.inputs)
        if d not in request.dims
    ]
    if unused := request.dims.keys() - default_dims(request.inputs).keys():
        raise UsageError(f"--dim {min(unused)}: no input has a dim of that name")
    arguments = named_arguments(model, [t.name for t in request.inputs])
    return Prepared(
        model=FlatModel(model, arguments.rebuild).eval(),
        inputs=request.inputs,
        dims=dims,
        source=source_of(checkpoint, request.model),
        source_bytes=sum(p.stat().st_size for p in checkpoint.files),
        default_name=checkpoint.name,
        output_names=request.output_names,
        notes=[*checkpoint.notes, *notes],
    )


def build(target: str, arguments: dict[str, Any]) -> torch.nn.Module:
    """Import ``package.module:Factory`` from the working folder or the environment and call it.

    Raises:
        UsageError: there is no such module or attribute, or the arguments do not fit.
        InputError: the factory raises, or returns no module.
    """
    factory = imported(target, "--model", "package.module:Factory")
    return called(factory, target, arguments, hint="arguments are given by --model-arg name=value")


def called(
    factory: Any, name: str, arguments: dict[str, Any], *, hint: str | None = None
) -> torch.nn.Module:
    """Call ``factory`` and return the module that it makes.

    Raises:
        InputError: it raises, or returns something else.
    """
    try:
        model = factory(**arguments)
    except Exception as error:
        where = user_line(error)
        raise InputError(
            f"{name} raises {type(error).__name__}: {error}" + (f" ({where})" if where else ""),
            hint=hint,
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise InputError(f"{name} returns {type(model).__name__}, not a torch.nn.Module")
    return model


def specs_of(names: tuple[str, ...], tensors: list[torch.Tensor]) -> tuple[TensorSpec, ...]:
    """Return static specs of example tensors, by name."""
    from modelops_exporters.tensors import dtype_name

    try:
        return tuple(
            TensorSpec(name=n, dtype=dtype_name(t.dtype), shape=tuple(t.shape))
            for n, t in zip(names, tensors, strict=True)
        )
    except ValueError as error:
        raise ExportError(str(error).splitlines()[-1].strip()) from error
