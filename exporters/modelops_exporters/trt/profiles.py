"""The shapes that a plan is built for: the artifact's dims, and the sizes to tune for."""

from __future__ import annotations

import math
from collections.abc import Mapping

from modelops.errors import UsageError
from modelops.signature import DimRange, Frozen, Signature


class InputShapes(Frozen):
    """The least shape of one input, the one to tune for, and the largest."""

    min: tuple[int, ...]
    opt: tuple[int, ...]
    max: tuple[int, ...]


def input_shapes(signature: Signature, opt: Mapping[str, int]) -> dict[str, InputShapes]:
    """Return the shapes of every input, by its name.

    Raises:
        UsageError: ``opt`` names no dim, or a size outside its range.
    """
    for name, size in opt.items():
        if name not in signature.dims:
            raise UsageError(
                f"--option opt: the model has no dim {name!r}",
                hint="its dims are: " + (", ".join(signature.dims) or "none"),
            )
        allowed = signature.dims[name]
        if not allowed.min <= size <= allowed.max:
            raise UsageError(
                f"--option opt: {name}={size} is outside its range, {allowed.min}..{allowed.max}"
            )
    low = {name: dim.min for name, dim in signature.dims.items()}
    high = {name: dim.max for name, dim in signature.dims.items()}
    middle = {n: opt.get(n, _middle(dim)) for n, dim in signature.dims.items()}
    return {
        spec.name: InputShapes(min=spec.sized(low), opt=spec.sized(middle), max=spec.sized(high))
        for spec in signature.inputs
    }


def _middle(dim: DimRange) -> int:
    # Sizes in the field spread over orders of magnitude: half way between 1 and 64 is 8, not 32.
    return max(dim.min, round(math.sqrt(max(1, dim.min) * dim.max)))
