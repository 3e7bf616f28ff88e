"""Straight from the torch.export program, by torch-tensorrt."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from modelops.errors import ExportError, MissingEnvironmentError, UsageError
from modelops.progress import Progress
from modelops.protocols import ExportedProgram
from modelops_exporters.trt.options import TensorRTOptions
from modelops_exporters.trt.profiles import InputShapes


def require_torch_tensorrt() -> Any:
    """Return torch-tensorrt, which does not even load without a GPU.

    Raises:
        MissingEnvironmentError: it is not installed, or does not load.
    """
    try:
        return import_module("torch_tensorrt")
    except (ImportError, OSError, RuntimeError) as error:
        said = " ".join(str(error).split())[:200]
        raise MissingEnvironmentError(
            f"torch-tensorrt does not load: {said}",
            hint="pip install torch-tensorrt (on a machine with an NVIDIA GPU), or leave "
            "via=torch out",
        ) from error


def build_from_torch(
    exported: ExportedProgram,
    shapes: Mapping[str, InputShapes],
    options: TensorRTOptions,
    progress: Progress,
) -> bytes:
    """Return a plan of the whole program; nothing of it is left to PyTorch.

    Raises:
        UsageError: an option that torch-tensorrt does not have.
        MissingEnvironmentError: torch-tensorrt is missing.
        ExportError: it cannot convert the program.
    """
    torch_tensorrt = require_torch_tensorrt()
    import torch

    if options.timing_cache is not None:
        raise UsageError("--option timing_cache is of via=onnx; torch-tensorrt keeps its own")
    progress("converting the program by torch-tensorrt")
    signature = exported.signature
    inputs = [
        torch_tensorrt.Input(
            min_shape=shapes[spec.name].min,
            opt_shape=shapes[spec.name].opt,
            max_shape=shapes[spec.name].max,
            dtype=getattr(torch, spec.dtype),
        )
        for spec in signature.inputs
    ]
    asked: dict[str, Any] = {
        "disable_tf32": not options.tf32,
        "version_compatible": options.version_compatible,
        "hardware_compatible": options.hardware_compatibility,
        "enable_weight_streaming": options.weight_streaming,
        "require_full_compilation": True,
    }
    if options.optimization_level is not None:
        asked["optimization_level"] = options.optimization_level
    if options.workspace is not None:
        asked["workspace_size"] = options.workspace
    # Its exceptions have no common base.
    try:
        plan = torch_tensorrt.dynamo.convert_exported_program_to_serialized_trt_engine(
            exported.program,
            arg_inputs=inputs,
            arg_input_binding_names=[t.name for t in signature.inputs],
            output_binding_names=[t.name for t in signature.outputs],
            **asked,
        )
    except Exception as error:
        raise ExportError(f"torch-tensorrt does not convert the program: {error}") from error
    if not plan:
        raise ExportError("torch-tensorrt returned no plan, and gave no reason")
    return bytes(plan)
