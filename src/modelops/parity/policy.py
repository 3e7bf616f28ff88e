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


def tolerance_for(precision: str) -> Tolerance:
    """Return the default tolerance for ``precision`` (a float dtype's name or an alias).

    Raises:
        UsageError: no such dtype.
    """
    return _BY_PRECISION.get(dtype(precision).name, _BY_PRECISION["float32"])
