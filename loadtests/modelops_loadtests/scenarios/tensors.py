"""Tensors over the Open Inference Protocol: random inputs that fit the model's own metadata."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Self
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import orjson

from modelops.dtypes import BY_OIP, numpy_dtype
from modelops.errors import InputError, ModelNotFoundError, UsageError
from modelops_loadtests.scenarios.scenario import (
    Answer,
    BadAnswerError,
    Get,
    Reply,
    Request,
    Settings,
    error_text,
    parse_json,
)

DEFAULT_SIZE = 16
_BODIES = 64
_LENGTH = "inference-header-content-length"


@dataclass(frozen=True)
class Tensor:
    """One input or output as the server describes it; a dim is a size, a name, or −1."""

    name: str
    datatype: str
    shape: tuple[int | str, ...]
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True)
class TensorsScenario:
    """Sends one of a few dozen bodies made beforehand, so that making them costs no time."""

    path: str
    headers: dict[str, str]
    bodies: tuple[bytes, ...]
    outputs: tuple[Tensor, ...]
    items: int

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:
        """Read the model's metadata and make the bodies.

        A dynamic dim takes its size from ``settings.dims``; else the leading one is
        ``settings.batch`` and any other is 16, moved into the range that the server states.

        Raises:
            ModelNotFoundError: the server has no such model.
            InputError: its metadata cannot be read.
            UsageError: a dim is unknown or outside its range, or a dtype needs binary.
        """
        path = f"/v2/models/{quote(settings.model, safe='')}"
        status, metadata = get(path)
        if status == 404:
            raise ModelNotFoundError(f"no model {settings.model!r} is served there")
        if status != 200 or not isinstance(metadata, dict):
            said = f": {error_text(metadata)}" if metadata else ""
            raise InputError(f"GET {path} answered {status}{said}")
        try:
            inputs, outputs, ranges = _read_metadata(metadata)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"the metadata of {settings.model!r} is not as the protocol has it: {error!r}"
            ) from error
        sizes = _sizes(inputs, ranges, settings)
        rng = np.random.default_rng(settings.seed)
        binary = settings.encoding == "binary"
        names = [o.name for o in outputs]
        made = [[(t, _random(t, _shape(t, sizes), rng)) for t in inputs] for _ in range(_BODIES)]
        encoded = [_encode(tensors, names, binary=binary) for tensors in made]
        headers = {"Content-Type": "application/octet-stream" if binary else "application/json"}
        if binary:
            headers["Inference-Header-Content-Length"] = str(encoded[0][1])
        first = _shape(inputs[0], sizes)
        items = first[0] if first else 1
        return cls(f"{path}/infer", headers, tuple(b for b, _ in encoded), outputs, items)

    def request(self, rng: Random) -> Request:
        """Return one of the bodies."""
        body = rng.choice(self.bodies)
        return Request(self.path, body, self.headers, self.items, "tensors")

    def check(self, request: Request, reply: Reply) -> Answer:
        """Check that every output is there, of the described dtype and rank, and finite."""
        length = reply.headers.get(_LENGTH)
        try:
            header = reply.body[: int(length)] if length else reply.body
        except ValueError:
            raise BadAnswerError("invalid_body", f"{_LENGTH} is {length!r}") from None
        parsed = parse_json(header)
        listed = parsed.get("outputs")
        if not isinstance(listed, list) or not all(isinstance(o, dict) for o in listed):
            raise BadAnswerError("invalid_body", "there is no list named outputs")
        got = {o.get("name"): o for o in listed}
        if missing := [t.name for t in self.outputs if t.name not in got]:
            raise BadAnswerError("wrong_count", f"outputs missing: {', '.join(missing)}")
        blobs = memoryview(reply.body)[len(header) :]
        for output in listed:
            blobs = _check_output(output, blobs)
        for tensor in self.outputs:
            _check_described(tensor, got[tensor.name])
        if len(blobs):
            raise BadAnswerError("invalid_body", f"{len(blobs)} bytes after the last output")
        return Answer(request.items)


def _read_metadata(
    metadata: Mapping[str, Any],
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], dict[str, tuple[int, int]]]:
    dims = (metadata.get("parameters") or {}).get("dims") or {}
    ranges = {str(d): _range(r) for d, r in dims.items()}
    inputs = tuple(_tensor(t) for t in metadata["inputs"])
    if not inputs:
        raise ValueError("no inputs")
    unnamed = [sum(d == -1 for d in t.shape) for t in inputs]
    if all(count in (0, len(ranges)) for count in unnamed):
        # Ranges by name, and as many dynamic axes without one: they come in the same order.
        inputs = tuple(_named(t, list(ranges)) for t in inputs)
    return inputs, tuple(_tensor(t) for t in metadata["outputs"]), ranges


def _range(raw: Any) -> tuple[int, int]:
    low, high = map(int, (raw["min"], raw["max"]) if isinstance(raw, dict) else raw)
    if low > high:
        raise ValueError(f"the range {low}..{high} is empty")
    return low, high


def _named(tensor: Tensor, names: list[str]) -> Tensor:
    left = iter(names)
    return replace(tensor, shape=tuple(next(left) if d == -1 else d for d in tensor.shape))


def _tensor(raw: Mapping[str, Any]) -> Tensor:
    parameters = raw.get("parameters") or {}
    shape = tuple(int(s) for s in raw["shape"])
    named = parameters.get("shape") or shape
    if raw["datatype"] not in BY_OIP:
        raise ValueError(f"tensor {raw['name']} is {raw['datatype']}")
    bounds = _range(parameters["bounds"]) if parameters.get("bounds") else None
    dtype = numpy_dtype(BY_OIP[raw["datatype"]].name)
    if bounds and dtype.kind in "iu":
        held = np.iinfo(dtype)
        if bounds[0] < held.min or bounds[1] > held.max:
            raise ValueError(f"bounds {bounds} of {raw['name']} exceed {raw['datatype']}")
    return Tensor(
        name=str(raw["name"]),
        datatype=str(raw["datatype"]),
        shape=tuple(
            n if s < 0 and isinstance(n, str) else s for s, n in zip(shape, named, strict=True)
        ),
        bounds=bounds,
    )


def _dim_name(position: int, dim: int | str) -> str | None:
    """Name a dynamic dim; where the server gives none, ``dim0`` is the leading one, and so on."""
    if isinstance(dim, str):
        return dim
    return f"dim{position}" if dim < 0 else None


def _sizes(
    inputs: tuple[Tensor, ...], ranges: Mapping[str, tuple[int, int]], settings: Settings
) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tensor in inputs:
        for position, dim in enumerate(tensor.shape):
            name = _dim_name(position, dim)
            if name is not None:
                low, high = ranges.get(name, (1, 2**31))
                wanted = settings.batch if position == 0 else DEFAULT_SIZE
                sizes.setdefault(name, min(max(wanted, low, 1), high))
    for name, size in settings.dims.items():
        if name not in sizes:
            known = ", ".join(sizes) or "none"
            raise UsageError(
                f"the model has no dynamic dim {name!r}", hint=f"dynamic dims: {known}"
            )
        low, high = ranges.get(name, (1, 2**31))
        if not low <= size <= high:
            raise UsageError(
                f"--dim {name}={size} is outside {low}..{high}, which the server takes"
            )
        sizes[name] = size
    return sizes


def _shape(tensor: Tensor, sizes: Mapping[str, int]) -> tuple[int, ...]:
    names = [_dim_name(p, d) for p, d in enumerate(tensor.shape)]
    return tuple(
        sizes[n] if n is not None else int(d) for n, d in zip(names, tensor.shape, strict=True)
    )


def _random(tensor: Tensor, shape: tuple[int, ...], rng: np.random.Generator) -> npt.NDArray[Any]:
    dtype = numpy_dtype(BY_OIP[tensor.datatype].name)
    if tensor.datatype == "BYTES":
        words = [f"word{i}".encode() for i in rng.integers(0, 1000, math.prod(shape))]
        return np.array(words, dtype=object).reshape(shape)
    if tensor.datatype == "BOOL":
        return rng.integers(0, 2, shape).astype(dtype)
    if BY_OIP[tensor.datatype].is_float:
        return rng.standard_normal(shape).astype(dtype)
    low, high = tensor.bounds or (0, 100)
    # A mask of ones and one segment are what a request without padding carries.
    for word, usual in (("mask", 1), ("type_id", 0)):
        if word in tensor.name and low <= usual <= high:
            return np.full(shape, usual, dtype)
    return rng.integers(low, high, shape, dtype=dtype, endpoint=True)


def _encode(
    tensors: list[tuple[Tensor, npt.NDArray[Any]]], outputs: list[str], *, binary: bool
) -> tuple[bytes, int]:
    """Return a request's body and the length of its JSON part."""
    inputs: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for tensor, values in tensors:
        described: dict[str, Any] = {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(values.shape),
        }
        if binary:
            blobs.append(_blob(tensor, values))
            described["parameters"] = {"binary_data_size": len(blobs[-1])}
        elif tensor.datatype in ("FP16", "BF16"):
            raise UsageError(
                f"input {tensor.name!r} is {tensor.datatype}, which JSON cannot carry",
                hint="--encoding binary",
            )
        elif tensor.datatype == "BYTES":
            described["data"] = [v.decode() for v in values.ravel()]
        else:
            described["data"] = values.ravel().tolist()
        inputs.append(described)
    asked = [{"name": n, "parameters": {"binary_data": binary}} for n in outputs]
    header = orjson.dumps({"inputs": inputs, "outputs": asked})
    return b"".join([header, *blobs]), len(header)


def _blob(tensor: Tensor, values: npt.NDArray[Any]) -> bytes:
    if tensor.datatype == "BYTES":
        return b"".join(len(v).to_bytes(4, "little") + v for v in values.ravel())
    return values.tobytes()


def _check_output(output: Mapping[str, Any], blobs: memoryview) -> memoryview:
    """Check one output's size and values; return what follows its part of the binary data."""
    name = str(output.get("name"))
    kind = BY_OIP.get(str(output.get("datatype")))
    shape = output.get("shape")
    if kind is None or not isinstance(shape, list) or not all(type(s) is int for s in shape):
        raise BadAnswerError("invalid_body", f"output {name!r} has no dtype or shape")
    parameters = output.get("parameters") or {}
    size = parameters.get("binary_data_size")
    count = math.prod(shape)
    if count <= 0:
        raise BadAnswerError("invalid_body", f"output {name!r} is empty: shape {shape}")
    if size is None:
        data = output.get("data")
        if not isinstance(data, list):
            raise BadAnswerError("invalid_body", f"output {name!r} carries no data")
        try:
            values = np.array(data, dtype=np.float64 if kind.is_float else object).ravel()
        except (ValueError, TypeError):
            raise BadAnswerError("invalid_body", f"output {name!r} is not numbers") from None
        rest = blobs
    else:
        if type(size) is not int or not 0 <= size <= len(blobs):
            raise BadAnswerError("invalid_body", f"output {name!r}: {size} binary bytes announced")
        rest = blobs[size:]
        if kind.itemsize == 0:
            return rest
        if size != count * kind.itemsize:
            raise BadAnswerError("wrong_count", f"output {name!r}: {size} bytes for shape {shape}")
        values = np.frombuffer(blobs[:size], dtype=numpy_dtype(kind.name))
    if len(values) != count:
        raise BadAnswerError("wrong_count", f"output {name!r}: {len(values)} values for {shape}")
    if kind.is_float and not np.isfinite(values.astype(np.float64)).all():
        raise BadAnswerError("not_finite", f"output {name!r} has values that are not finite")
    return rest


def _check_described(tensor: Tensor, output: Mapping[str, Any]) -> None:
    shape = output["shape"]
    fixed = [(w, s) for w, s in zip(tensor.shape, shape, strict=False) if type(w) is int and w >= 0]
    if (
        output["datatype"] != tensor.datatype
        or len(shape) != len(tensor.shape)
        or any(w != s for w, s in fixed)
    ):
        raise BadAnswerError(
            "invalid_body",
            f"output {tensor.name!r} came as {output['datatype']}{shape}, not as described: "
            f"{tensor.datatype}{list(tensor.shape)}",
        )
