"""The tensor dtypes and their names in each of the worlds that modelops joins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from modelops.errors import UsageError


@dataclass(frozen=True)
class DType:
    """One dtype; ``name`` is also numpy's and torch's, ``oip`` the Open Inference Protocol's."""

    name: str
    oip: str
    onnx: str
    itemsize: int  # bytes; 0 for variable-length strings

    @property
    def is_float(self) -> bool:
        """Whether values are floating-point, and so may be NaN and take a tolerance."""
        return self.oip.startswith(("FP", "BF"))


_ALL = (
    DType("bool", "BOOL", "tensor(bool)", 1),
    DType("uint8", "UINT8", "tensor(uint8)", 1),
    DType("uint16", "UINT16", "tensor(uint16)", 2),
    DType("uint32", "UINT32", "tensor(uint32)", 4),
    DType("uint64", "UINT64", "tensor(uint64)", 8),
    DType("int8", "INT8", "tensor(int8)", 1),
    DType("int16", "INT16", "tensor(int16)", 2),
    DType("int32", "INT32", "tensor(int32)", 4),
    DType("int64", "INT64", "tensor(int64)", 8),
    DType("float16", "FP16", "tensor(float16)", 2),
    DType("bfloat16", "BF16", "tensor(bfloat16)", 2),
    DType("float32", "FP32", "tensor(float)", 4),
    DType("float64", "FP64", "tensor(double)", 8),
    DType("string", "BYTES", "tensor(string)", 0),
)

DTYPES: dict[str, DType] = {d.name: d for d in _ALL}
BY_OIP: dict[str, DType] = {d.oip: d for d in _ALL}
BY_ONNX: dict[str, DType] = {d.onnx: d for d in _ALL}

_ALIASES = {
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float": "float32",
    "fp64": "float64",
    "double": "float64",
    "int": "int64",
    "long": "int64",
}


def dtype(name: str) -> DType:
    """Return the dtype called ``name`` (``float32``, or a usual alias such as ``fp32``).

    Raises:
        UsageError: no dtype has this name.
    """
    key = name.lower().removeprefix("torch.")
    found = DTYPES.get(_ALIASES.get(key, key))
    if found is None:
        raise UsageError(f"unknown dtype {name!r}", hint="one of: " + ", ".join(DTYPES))
    return found


@cache
def numpy_dtype(name: str) -> Any:
    """Return numpy's dtype for ``name``; bfloat16 comes from ml_dtypes, strings are objects."""
    import numpy as np

    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(object) if name == "string" else np.dtype(name)
