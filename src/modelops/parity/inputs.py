"""Seeded inputs for tracing and for parity: distinct tensors of distinct values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.signature import DimRange, Signature, TensorSpec

Arrays = dict[str, npt.NDArray[Any]]

# Where nothing is known of an integer input, small values are in range of most tables.
_UNKNOWN_BOUNDS = (0, 9)
_EXAMPLE_SIZES = (3, 5, 7, 11, 13, 17, 19, 23)


def example_sizes(dims: Mapping[str, DimRange]) -> dict[str, int]:
    """Return sizes to trace at: distinct, odd, at least 2, inside each dim's range.

    A size of 1 would be baked into the graph, and two dims of one size taken for the same dim.
    """
    taken: set[int] = set()
    sizes: dict[str, int] = {}
    for name, allowed in dims.items():
        candidates = [s for s in _EXAMPLE_SIZES if allowed.min <= s <= allowed.max]
        candidates += range(max(allowed.min, 2), min(allowed.max, allowed.min + 64) + 1)
        size = next((s for s in candidates if s not in taken), allowed.max)
        taken.add(size)
        sizes[name] = size
    return sizes


def random_tensor(
    spec: TensorSpec, shape: Sequence[int], rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Return a tensor of ``shape`` that ``spec`` allows: normal floats, integers in bounds.

    A bool tensor gets one row of its last dim that is all false and one that is all true, since
    fully masked rows are where attention goes wrong.
    """
    if spec.dtype == "bool":
        values = rng.random(shape) < 0.5
        if values.ndim and values.size:
            rows = values.reshape(-1, values.shape[-1])
            rows[-1] = True
            rows[0] = False
        return values
    if DTYPES[spec.dtype].is_float:
        return rng.standard_normal(shape).astype(numpy_dtype(spec.dtype))
    low, high = spec.bounds or _UNKNOWN_BOUNDS
    return rng.integers(low, high, size=shape, endpoint=True).astype(numpy_dtype(spec.dtype))


def ragged_lengths(batch: int, longest: int, rng: np.random.Generator) -> list[int]:
    """Return a length for each item: one full, one of a single position, the rest between."""
    if batch == 1:
        return [(longest + 1) // 2]
    lengths = [int(n) for n in rng.integers(1, max(longest, 1), size=batch, endpoint=True)]
    lengths[0] = longest
    lengths[-1] = 1
    return lengths


class RandomInputs:
    """Makes random inputs for a signature, with ragged lengths under its mask when asked."""

    def __init__(self, signature: Signature, seed: int) -> None:
        self._signature = signature
        self._seed = seed

    def make(self, dims: Mapping[str, int], *, padded: bool = False) -> Arrays:
        """Return inputs at the sizes ``dims``; the same call gives the same values."""
        signature = self._signature
        key = [self._seed, int(padded), *(dims[name] for name in sorted(dims))]
        rng = np.random.default_rng(key)
        arrays = {t.name: random_tensor(t, t.sized(dims), rng) for t in signature.inputs}
        padding = signature.padding
        if padding is not None:
            mask = signature.input(padding.mask)
            shape = mask.sized(dims)
            lengths = [shape[-1]] * shape[0]
            if padded:
                lengths = ragged_lengths(shape[0], shape[-1], rng)
            real = np.arange(shape[-1])[None, :] < np.asarray(lengths)[:, None]
            arrays[padding.mask] = real.astype(numpy_dtype(mask.dtype))
            for name, value in padding.values.items():
                if name != padding.mask:
                    arrays[name] = np.where(real, arrays[name], value).astype(arrays[name].dtype)
        return arrays
