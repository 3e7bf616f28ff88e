"""Inputs that an engine is warmed up with before it may be called ready."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.artifact import Artifact
from modelops.dtypes import numpy_dtype
from modelops.signature import Signature, TensorSpec

SAMPLES = "samples.safetensors"

_BATCH = 8
_OTHER = 32
_LARGEST_BYTES = 64 * 2**20


def warmup_sizes(signature: Signature) -> list[dict[str, int]]:
    """Return the smallest sizes and, where it differs and stays small, an ordinary middle."""
    smallest = {name: max(1, dim.min) for name, dim in signature.dims.items()}
    middle = {
        name: max(smallest[name], min(dim.max, _BATCH if name == signature.batch_dim else _OTHER))
        for name, dim in signature.dims.items()
    }
    sizes = [smallest]
    if middle != smallest and signature.nbytes(middle) <= _LARGEST_BYTES:
        sizes.append(middle)
    return sizes


def warmup_inputs(artifact: Artifact) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield inputs of each of ``warmup_sizes``, then the golden samples' where there are any."""
    signature = artifact.manifest.signature
    for dims in warmup_sizes(signature):
        yield {spec.name: _filled(spec, dims) for spec in signature.inputs}
    yield from _golden(artifact)


def _filled(spec: TensorSpec, dims: Mapping[str, int]) -> npt.NDArray[Any]:
    shape = spec.sized(dims)
    if spec.dtype == "string":
        strings = np.empty(math.prod(shape), dtype=object)
        strings[:] = b"warm-up"
        return strings.reshape(shape)
    value = 1 if spec.bounds is None else min(max(1, spec.bounds[0]), spec.bounds[1])
    return np.full(shape, value, dtype=numpy_dtype(spec.dtype))


def _golden(artifact: Artifact) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield the inputs that export proved the artifact with (keys ``number.in.name``)."""
    if SAMPLES not in artifact.manifest.files or any(
        t.dtype == "bfloat16" for t in artifact.manifest.signature.inputs
    ):  # safetensors has no numpy form of bfloat16
        return
    from safetensors.numpy import load_file

    samples: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for key, array in load_file(artifact.file(SAMPLES)).items():
        number, side, name = key.split(".", 2)
        if side == "in":
            samples.setdefault(number, {})[name] = array
    yield from samples.values()
