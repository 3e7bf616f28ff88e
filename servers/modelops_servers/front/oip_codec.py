"""Open Inference Protocol v2 over HTTP, as pure functions between bytes and numpy arrays."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from modelops.dtypes import BY_OIP, DTYPES, DType
from modelops.errors import RequestError
from modelops.signature import Signature, TensorSpec
from modelops_servers.dataplane.packed_strings import PackedStrings
from modelops_servers.dataplane.strings import LENGTH_BYTES
from modelops_servers.front.json_object import json_object
from modelops_servers.front.tensor_codec import (
    Array,
    check_strings,
    from_binary,
    from_json,
    one_string,
    shown,
    to_binary,
    to_json,
)

_MAX_RANK = 32


@dataclass(frozen=True)
class RequestedOutput:
    """One output that the client asked for."""

    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    """One decoded request; ``outputs`` in the order of the answer."""

    id: str | None
    tensors: dict[str, Array]
    outputs: tuple[RequestedOutput, ...]
    timeout_seconds: float | None = None
    unwalked: tuple[str, ...] = ()
    """Inputs of so many strings that ``check_strings`` is left to the caller."""


@dataclass(frozen=True)
class Encoded:
    """One encoded answer; ``json_length`` is None where no tensor is binary."""

    parts: list[bytes | memoryview]
    json_length: int | None


def decode_request(
    body: bytes | memoryview,
    signature: Signature,
    json_length: int | None = None,
    walked: int = sys.maxsize,
) -> InferRequest:
    """Decode one infer request.

    ``json_length`` is the Inference-Header-Content-Length header: None where there is none (the
    body is JSON), 0 for the raw bytes of the only input. ``walked`` is how many strings of binary
    data are looked at here; inputs beyond that are named in the result's ``unwalked``.

    Raises:
        RequestError: the body is not such a request; the input is named.
    """
    view = memoryview(body)
    if json_length == 0:
        return _raw(view, signature)
    if json_length is not None and json_length > len(view):
        raise RequestError(
            f"Inference-Header-Content-Length is {json_length}, but the body has {len(view)} bytes"
        )
    head = json_object(view if json_length is None else view[:json_length])
    rest = view[len(view) if json_length is None else json_length :]
    parameters = _parameters(head, "the request")
    inputs = head.get("inputs")
    if not isinstance(inputs, list) or not inputs:
        raise RequestError('the request needs "inputs", a list of at least one tensor')
    tensors: dict[str, Array] = {}
    unwalked: list[str] = []
    offset = 0
    for entry in inputs:
        name, array, used = _decode_input(entry, rest, offset)
        if name in tensors:
            raise RequestError(f"input {shown(name)} is there twice")
        tensors[name] = array
        offset += used
        if isinstance(array, PackedStrings):
            walked -= min(array.size, used // LENGTH_BYTES)
            if walked >= 0:
                check_strings(name, array.packed, array.size)
            else:
                unwalked.append(name)
    if offset != len(rest):
        raise RequestError(
            f"{len(rest)} bytes follow the JSON, but the inputs' binary_data_size add up to "
            f"{offset}"
        )
    return InferRequest(
        id=_id(head),
        tensors=tensors,
        outputs=_requested(head.get("outputs"), parameters, signature),
        timeout_seconds=_timeout(parameters),
        unwalked=tuple(unwalked),
    )


def encode_response(
    model: str,
    version: str,
    request: InferRequest,
    outputs: Mapping[str, Array],
    signature: Signature,
) -> Encoded:
    """Encode the outputs asked for; non-finite numbers are null in JSON and exact in binary.

    Raises:
        RequestError: an output that JSON cannot hold was not asked for in binary.
    """
    dtypes = {t.name: DTYPES[t.dtype] for t in signature.outputs}
    entries: list[dict[str, Any]] = []
    blobs: list[bytes | memoryview] = []
    for wanted in request.outputs:
        array, dtype = outputs[wanted.name], dtypes[wanted.name]
        entry: dict[str, Any] = {
            "name": wanted.name,
            "datatype": dtype.oip,
            "shape": list(array.shape),
        }
        if wanted.binary:
            blob = to_binary(array)
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = to_json(wanted.name, array, dtype)
        entries.append(entry)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": entries}
    if request.id is not None:
        head["id"] = request.id
    text = orjson.dumps(head, option=orjson.OPT_SERIALIZE_NUMPY)
    binary = any(wanted.binary for wanted in request.outputs)
    return Encoded([text, *blobs], len(text) if binary else None)


def _decode_input(entry: Any, rest: memoryview, offset: int) -> tuple[str, Array, int]:
    if not isinstance(entry, dict):
        raise RequestError('every element of "inputs" is an object')
    name = entry.get("name")
    if not isinstance(name, str):
        raise RequestError('an input needs "name", a string')
    dtype = _datatype(name, entry.get("datatype"))
    shape = _shape(name, entry.get("shape"))
    parameters = _parameters(entry, f"input {shown(name)}")
    if "shared_memory_region" in parameters:
        raise RequestError(f"input {shown(name)}: shared memory is not supported over HTTP here")
    size = parameters.get("binary_data_size")
    if size is None:
        if "data" not in entry:
            raise RequestError(f'input {shown(name)} needs "data" or binary_data_size')
        return name, from_json(name, dtype, shape, entry["data"]), 0
    if type(size) is not int or size < 0:
        raise RequestError(f"input {shown(name)}: binary_data_size is a number of bytes")
    if "data" in entry:
        raise RequestError(f'input {shown(name)} has both "data" and binary_data_size')
    if size > len(rest) - offset:
        raise RequestError(
            f"input {shown(name)} says {size} bytes of binary data, "
            f"but {len(rest) - offset} are left in the body"
        )
    return name, from_binary(name, dtype, shape, rest[offset : offset + size]), size


def _raw(view: memoryview, signature: Signature) -> InferRequest:
    if len(signature.inputs) != 1:
        raise RequestError("a body without JSON needs a model with one input")
    spec = signature.inputs[0]
    dtype = DTYPES[spec.dtype]
    if dtype.itemsize == 0:
        # As the protocol's extension has it: all of it is one element, with no length before it.
        array = one_string(spec.name, len(spec.shape), view)
    else:
        array = from_binary(spec.name, dtype, _deduced(spec, len(view) // dtype.itemsize), view)
    outputs = tuple(RequestedOutput(t.name, binary=True) for t in signature.outputs)
    return InferRequest(None, {spec.name: array}, outputs)


def _deduced(spec: TensorSpec, count: int) -> tuple[int, ...]:
    """The shape of a raw body: one dynamic dim takes what is left, and a batch then counts 1."""
    dynamic = [i for i, d in enumerate(spec.shape) if isinstance(d, str)]
    if len(dynamic) > 2 or (len(dynamic) == 2 and dynamic[0] != 0):
        raise RequestError(f"the shape of {spec} cannot be told from a body without JSON")
    shape = [d if isinstance(d, int) else 1 for d in spec.shape]
    if dynamic:
        shape[dynamic[-1]] = count // max(1, math.prod(shape))
    return tuple(shape)


def _requested(
    entries: Any, parameters: Mapping[str, Any], signature: Signature
) -> tuple[RequestedOutput, ...]:
    default = _flag(parameters, "binary_data_output", "the request")
    names = [t.name for t in signature.outputs]
    if entries is None or entries == []:
        return tuple(RequestedOutput(name, default) for name in names)
    if not isinstance(entries, list):
        raise RequestError('"outputs" is a list')
    wanted: list[RequestedOutput] = []
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise RequestError('an output needs "name", a string')
        if name not in names:
            raise RequestError(f"unexpected output {shown(name)}; the model has {', '.join(names)}")
        if any(other.name == name for other in wanted):
            raise RequestError(f"output {shown(name)} is asked for twice")
        options = _parameters(entry, f"output {shown(name)}")
        if options.get("classification") or "shared_memory_region" in options:
            raise RequestError(
                f"output {shown(name)}: classification and shared memory are not supported here"
            )
        binary = _flag(options, "binary_data", f"output {shown(name)}", default)
        wanted.append(RequestedOutput(name, binary))
    return tuple(wanted)


def _parameters(owner: Mapping[str, Any], what: str) -> dict[str, Any]:
    value = owner.get("parameters")
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f'"parameters" of {what} is an object')
    return value


def _flag(parameters: Mapping[str, Any], key: str, what: str, default: bool = False) -> bool:
    value = parameters.get(key, default)
    if not isinstance(value, bool):
        raise RequestError(f"{key} of {what} is true or false")
    return value


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """The protocol's ``timeout``, which counts microseconds; 0 is none."""
    value = parameters.get("timeout")
    if value is None or value == 0:
        return None
    if type(value) is not int or value < 0:
        raise RequestError("timeout is a whole number of microseconds")
    return value / 1e6


def _id(head: Mapping[str, Any]) -> str | None:
    value = head.get("id")
    if value is not None and not isinstance(value, str):
        raise RequestError('"id" is a string')
    return value


def _datatype(name: str, value: Any) -> DType:
    found = BY_OIP.get(value) if isinstance(value, str) else None
    if found is None:
        raise RequestError(
            f"input {shown(name)}: datatype {shown(value)} is none of {', '.join(BY_OIP)}"
        )
    return found


def _shape(name: str, value: Any) -> tuple[int, ...]:
    good = isinstance(value, list) and len(value) <= _MAX_RANK
    if not good or any(type(d) is not int or d < 0 for d in value):
        raise RequestError(f'input {shown(name)} needs "shape", a list of sizes')
    return tuple(value)
