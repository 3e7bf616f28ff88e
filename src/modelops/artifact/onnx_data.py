"""What an ONNX file may reach: its external data must be files of its own artifact."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from modelops.artifact.integrity import is_plain_name, read_plain, shown
from modelops.artifact.manifest import Manifest
from modelops.errors import IntegrityError, MissingEnvironmentError

_MAX_PROTOBUF = 2**31
_BITS = {
    "FLOAT": 32, "UINT8": 8, "INT8": 8, "UINT16": 16, "INT16": 16, "INT32": 32, "INT64": 64,
    "BOOL": 8, "FLOAT16": 16, "DOUBLE": 64, "UINT32": 32, "UINT64": 64, "COMPLEX64": 64,
    "COMPLEX128": 128, "BFLOAT16": 16, "FLOAT8E4M3FN": 8, "FLOAT8E4M3FNUZ": 8, "FLOAT8E5M2": 8,
    "FLOAT8E5M2FNUZ": 8, "FLOAT8E8M0": 8, "UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2,
    "INT2": 2,
}  # fmt: skip


def check_onnx(folder: Path, manifest: Manifest) -> None:
    """Check every place from which the ONNX entry would read, wherever in the graph it stands.

    External data must lie in model files that the manifest lists, and within their size; a
    compiled engine inside the graph (an EPContext node) is code, and refused.

    Raises:
        IntegrityError: it reaches elsewhere, or is no ONNX.
        MissingEnvironmentError: the onnx package is not installed.
    """
    onnx = _onnx()
    from google.protobuf.message import DecodeError

    entry = folder / manifest.entry
    try:
        model = onnx.ModelProto.FromString(read_plain(entry, _MAX_PROTOBUF))
    except DecodeError as error:
        raise IntegrityError(f"{entry} is no ONNX model: {error}") from error
    if not model.HasField("graph"):
        raise IntegrityError(f"{entry} is no ONNX model: it holds no graph")
    for message in _messages(model):
        if message.DESCRIPTOR.name == "TensorProto":
            why = _tensor_problem(onnx, manifest, message)
            if why:
                raise IntegrityError(
                    f"{entry}: tensor {shown(message.name)!r} {why}",
                    hint="do not load this file; export the model again from its checkpoint",
                )
        elif message.DESCRIPTOR.name == "NodeProto" and message.op_type == "EPContext":
            raise IntegrityError(
                f"{entry}: node {shown(message.name)!r} carries or names a compiled engine "
                "(EPContext), which is code"
            )


def _onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError as error:
        raise MissingEnvironmentError(
            "an ONNX artifact is checked with the package onnx, which is not installed here",
            hint='pip install "modelops[serve]"',
        ) from error
    return onnx


def _messages(message: Any) -> Iterator[Any]:
    """Yield ``message`` and all below it, so that no place in the format is forgotten."""
    waiting = [message]
    while waiting:
        message = waiting.pop()
        yield message
        if message.DESCRIPTOR.name == "TensorProto":
            continue  # its fields can be large, and hold no further tensor
        for field in message.DESCRIPTOR.fields:
            if field.message_type is None:
                continue
            value = getattr(message, field.name)
            if hasattr(value, "DESCRIPTOR"):
                if message.HasField(field.name):
                    waiting.append(value)
            else:
                waiting.extend(value)


def _tensor_problem(onnx: Any, manifest: Manifest, tensor: Any) -> str | None:
    external = tensor.data_location == onnx.TensorProto.EXTERNAL
    if not external and not tensor.external_data:
        return None
    if not external:
        return "names external data, and says it holds its own"
    pairs = [(e.key, e.value) for e in tensor.external_data]
    keys = dict(pairs)
    if len(keys) != len(pairs):
        return "names its external data twice"
    location = keys.get("location", "")
    if not is_plain_name(location):
        return f"reads from {shown(location)!r}, which is not a plain path inside the artifact"
    path = posixpath.join(posixpath.dirname(manifest.entry), location)
    file = manifest.files.get(path)
    if file is None or file.role != "model":
        return f"reads from {shown(location)!r}, which is not among the artifact's model files"
    return _range_problem(onnx, tensor, keys, location, file.size)


def _range_problem(
    onnx: Any, tensor: Any, keys: dict[str, str], location: str, size: int
) -> str | None:
    numbers = {}
    for key in ("offset", "length"):
        text = keys.get(key)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            return f"has {shown(text)!r} as the {key} of its external data"
        numbers[key] = None if text is None else int(text)
    types = {number: name for name, number in onnx.TensorProto.DataType.items()}
    bits = _BITS.get(types.get(tensor.data_type, ""))
    if bits is None or any(d < 0 for d in tensor.dims):
        return "has external data, and a type or shape that cannot have any"
    need = (math.prod(tensor.dims) * bits + 7) // 8
    if numbers["length"] not in (None, need):
        return f"needs {need} bytes of external data, and names {numbers['length']}"
    if (numbers["offset"] or 0) + need > size:
        return f"reads beyond the end of {location!r}, which has {size} bytes"
    return None
