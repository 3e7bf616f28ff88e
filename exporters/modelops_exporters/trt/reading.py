"""What a plan says of itself, read back from the engine and not from what was asked."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from modelops.tensorrt.dtypes import dtype_name

_PROFILE = 0


def read_back(trt: Any, engine: Any) -> dict[str, Any]:
    """Return the engine's tensors with their dtypes and ranges, its layers and their dtypes."""
    inputs: dict[str, Any] = {}
    outputs: dict[str, Any] = {}
    for index in range(engine.num_io_tensors):
        name = engine.get_tensor_name(index)
        dtype = dtype_name(engine.get_tensor_dtype(name))
        if engine.get_tensor_mode(name) == trt.TensorIOMode.INPUT:
            low, middle, high = engine.get_tensor_profile_shape(name, _PROFILE)
            inputs[name] = {
                "dtype": dtype,
                "min": list(low),
                "opt": list(middle),
                "max": list(high),
            }
        else:
            outputs[name] = {"dtype": dtype}
    inspector = engine.create_engine_inspector()
    told = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return {
        "inputs": inputs,
        "outputs": outputs,
        "layers": engine.num_layers,
        "profiles": engine.num_optimization_profiles,
        "layer_formats": layer_formats(told),
        "streamable_weight_bytes": engine.streamable_weights_size,
    }


def layer_formats(told: str) -> dict[str, int]:
    """Count in the inspector's JSON what formats and dtypes the layers' outputs are in."""
    counted: Counter[str] = Counter()
    for layer in json.loads(told).get("Layers", []):
        if isinstance(layer, dict):
            formats = {str(o.get("Format/Datatype", "?")) for o in layer.get("Outputs", [])}
            counted.update(formats)
    return dict(sorted(counted.items()))
