"""How far an artifact may be from eager, by precision."""

from __future__ import annotations

from modelops.artifact.manifest import Tolerance
from modelops.dtypes import dtype

# Rounding error grows with depth roughly as the unit roundoff times a few hundred for the models
# that people deploy; a wrong graph (a baked size, a dropped mask) is off by whole per cents.
_BY_PRECISION = {
    "float64": Tolerance(atol=1e-10, rtol=1e-10, min_cosine=0.999999),
    "float32": Tolerance(atol=1e-4, rtol=1e-4, min_cosine=0.99999),
    "float16": Tolerance(atol=1e-2, rtol=1e-2, min_cosine=0.999),
    "bfloat16": Tolerance(atol=4e-2, rtol=4e-2, min_cosine=0.997),
}

# A cosine of 0.99 is an error of 0.14 of the output's rms, spread about evenly; the worst of a
# few hundred values then lies near four times that. What is beyond is no rounding of the weights
# but a layer that eight bits do not carry, and rankings begin to change.
_QUANTISED = Tolerance(atol=0.6, rtol=0.05, min_cosine=0.99)
_BY_QUANTISATION = {"int8": _QUANTISED, "int8-dynamic": _QUANTISED, "int4": _QUANTISED}


def tolerance_for(precision: str) -> Tolerance:
    """Return the default tolerance for ``precision``: a float dtype's name, an alias, or int8.

    Raises:
        UsageError: no such dtype.
    """
    if precision in _BY_QUANTISATION:
        return _BY_QUANTISATION[precision]
    return _BY_PRECISION.get(dtype(precision).name, _BY_PRECISION["float32"])
