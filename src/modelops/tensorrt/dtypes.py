"""TensorRT's names of dtypes, and ours."""

from __future__ import annotations

from typing import Any

_NAMES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
}


def dtype_name(found: Any) -> str:
    """Return our name of a ``DataType``; TensorRT's own in small letters where we have none."""
    name = str(found.name)
    return _NAMES.get(name, name.lower())
