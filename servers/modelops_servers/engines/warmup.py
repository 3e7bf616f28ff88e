"""What an engine is warmed up with before it may be called ready, and how long that takes it."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.artifact import Artifact
from modelops.config import BatchingConfig
from modelops.dtypes import numpy_dtype
from modelops.errors import EngineError
from modelops.protocols import Infer
from modelops.signature import Signature, TensorSpec
from modelops_servers.batching import row_limit

_log = logging.getLogger(__name__)

SAMPLES = "samples.safetensors"

_BATCH = 8
_OTHER = 32
_LARGEST_BYTES = 64 * 2**20
_LENGTHS = (32, 128)
_LARGEST_POSITIONS = 4096
_SECONDS = 3.0
_REPEATS = 3


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


def size_classes(signature: Signature, config: BatchingConfig) -> list[dict[str, int]]:
    """Return the sizes at which calls will be made, the smallest first.

    Rows are the powers of two up to what one call may hold; positions along the padding dim its
    least and most and two ordinary lengths. A class of many rows that is large by the count of
    positions is left out: what attention or a convolution makes of it may not fit.
    """
    small = {name: max(1, allowed.min) for name, allowed in signature.dims.items()}
    middle = {n: max(small[n], min(d.max, _OTHER)) for n, d in signature.dims.items()}
    batch, padding = signature.batch_dim, signature.padding
    rows = [1] if batch is None else _row_classes(small[batch], row_limit(signature, config))
    lengths = [1]
    if padding is not None:
        low, high = small[padding.dim], signature.dims[padding.dim].max
        lengths = sorted({low, high, *(min(max(n, low), high) for n in _LENGTHS)})
    classes = []
    for count, length in itertools.product(rows, lengths):
        sizes = dict(middle)
        if batch is not None:
            sizes[batch] = count
        if padding is not None:
            sizes[padding.dim] = length
        fits = count == rows[0] or count * length <= _LARGEST_POSITIONS
        if fits and signature.nbytes(sizes) <= _LARGEST_BYTES:
            classes.append(sizes)
    return sorted(classes or [small], key=lambda sizes: positions(signature, sizes))


def _row_classes(least: int, limit: int) -> list[int]:
    powers = [2**n for n in range(limit.bit_length()) if least < 2**n < limit]
    return [least, *powers, limit] if limit > least else [least]


def positions(signature: Signature, sizes: Mapping[str, int]) -> int:
    """Return rows times positions along the padding dim: what a call's cost grows with."""
    rows = sizes.get(signature.batch_dim or "", 1)
    return rows * (1 if signature.padding is None else sizes[signature.padding.dim])


def warm_up(
    infer: Infer,
    signature: Signature,
    config: BatchingConfig,
    *,
    seconds: float = _SECONDS,
) -> list[tuple[int, float]]:
    """Run every size class once, and return positions and seconds of the best run of each.

    A class that would not end within ``seconds`` of the whole is left out, and so are those after
    it: a slow model is not kept from its callers by what it may never be asked. One that fails ends
    the warm-up too, and is an error only where none went before it.
    """
    timings: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    for sizes in size_classes(signature, config):
        count = positions(signature, sizes)
        if timings and timings[-1][1] * count / timings[-1][0] > until - time.monotonic():
            _log.info("warm-up ends before %s, which would take too long", sizes)
            break
        inputs = inputs_at(signature, sizes)
        best = math.inf
        try:
            for _ in range(_REPEATS):
                start = time.perf_counter()
                infer(inputs, None)
                best = min(best, time.perf_counter() - start)
                # The first run of a size also allocates: where runs are short, that would show.
                if best > seconds / 100:
                    break
        except EngineError as error:
            if not timings:
                raise
            _log.warning("warm-up ends at %s, where the engine fails: %s", sizes, error.message)
            break
        timings.append((count, best))
    return timings


def warmup_inputs(artifact: Artifact) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Yield inputs of each of ``warmup_sizes``, then the golden samples' where there are any."""
    signature = artifact.manifest.signature
    for dims in warmup_sizes(signature):
        yield inputs_at(signature, dims)
    yield from golden_inputs(artifact)


def inputs_at(signature: Signature, sizes: Mapping[str, int]) -> dict[str, npt.NDArray[Any]]:
    """Return plain inputs, of ones where ones are allowed, at ``sizes``."""
    return {spec.name: _filled(spec, sizes) for spec in signature.inputs}


def _filled(spec: TensorSpec, dims: Mapping[str, int]) -> npt.NDArray[Any]:
    shape = spec.sized(dims)
    if spec.dtype == "string":
        strings = np.empty(math.prod(shape), dtype=object)
        strings[:] = b"warm-up"
        return strings.reshape(shape)
    value = 1 if spec.bounds is None else min(max(1, spec.bounds[0]), spec.bounds[1])
    return np.full(shape, value, dtype=numpy_dtype(spec.dtype))


def golden_inputs(artifact: Artifact) -> Iterator[dict[str, npt.NDArray[Any]]]:
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
