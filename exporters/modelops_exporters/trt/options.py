"""What only TensorRT knows, as given by ``--option NAME=VALUE``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator

from modelops.errors import UsageError
from modelops.signature import Frozen

_UNITS = {"": 1, "mib": 2**20, "gib": 2**30}
_SIZE = re.compile(r"\s*(\d+)\s*([a-z]*)\s*\Z", re.IGNORECASE)


class TensorRTOptions(Frozen):
    """How a plan is built; what is left out is TensorRT's own choice.

    Attributes:
        via: from the ONNX graph by TensorRT's parser, or from the program by torch-tensorrt.
        opt: the sizes to tune for, ``batch=8,tokens=64``; of a dim not named, the geometric
            middle of its range.
        workspace: bytes of scratch memory that a layer may use, such as ``4GiB``.
        optimization_level: 0 to 5; higher builds longer for a faster plan.
        timing_cache: a file that is read if there, and written afterwards.
        hardware_compatibility: also runs on other GPUs of Ampere or newer, slower.
        version_compatible: also runs with newer TensorRT of the same major version.
        weight_streaming: weights may stay on the host and be streamed.
        tf32: float32 matrix work in TF32, faster and less exact. Off unless asked: a float32
            graph computes in float32.
    """

    via: Literal["onnx", "torch"] = "onnx"
    opt: dict[str, int] = Field(default_factory=dict)
    workspace: int | None = Field(default=None, ge=2**20)
    optimization_level: int | None = Field(default=None, ge=0, le=5)
    timing_cache: Path | None = None
    hardware_compatibility: bool = False
    version_compatible: bool = False
    weight_streaming: bool = False
    tf32: bool = False

    @field_validator("opt", mode="before")
    @classmethod
    def _sizes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = [part.partition("=") for part in value.split(",")]
        if not all(name.strip() and size.strip().isdecimal() for name, _, size in pairs):
            raise ValueError('write it as "batch=8,tokens=64"')
        return {name.strip(): int(size) for name, _, size in pairs}

    @field_validator("workspace", mode="before")
    @classmethod
    def _nbytes(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        found = _SIZE.match(value)
        if found is None or found[2].lower() not in _UNITS:
            raise ValueError('write it as "512MiB" or "4GiB"')
        return int(found[1]) * _UNITS[found[2].lower()]


def read_options(given: Mapping[str, Any]) -> TensorRTOptions:
    """Return the options; those of every target, such as ``opset``, are not among them.

    Raises:
        UsageError: one is unknown, the nearest is named; or its value cannot be meant.
    """
    known = TensorRTOptions.model_fields
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]}?" if near else "one of: " + ", ".join(known)
            raise UsageError(f"--to tensorrt has no option {name!r}", hint=hint)
    try:
        return TensorRTOptions.model_validate(dict(given))
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--option {first['loc'][0]}: {first['msg']}") from error
