"""The codec against the client's own, both ways, and against whatever else may be sent."""

from __future__ import annotations

import copy
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import RequestError
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.dataplane.packed_strings import opened
from modelops_servers.front.oip_codec import (
    InferRequest,
    RequestedOutput,
    decode_request,
    encode_response,
)

NO_JSON = ("float16", "bfloat16")
NAMES = st.text("abcxyz_", min_size=1, max_size=5)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple)

InferenceServerClient: Any = triton.InferenceServerClient


@st.composite
def arrays(draw: st.DrawFn, *, json: bool) -> tuple[str, Any]:
    """A dtype's name and a tensor of it, of what JSON can hold where ``json``."""
    names = [n for n in DTYPES if not (json and n in NO_JSON)]
    name, shape = draw(st.sampled_from(names)), draw(SHAPES)
    size = math.prod(shape)
    if name == "string":
        items = st.binary(max_size=5) if not json else TEXTS.map(str.encode)
        flat = np.empty(size, dtype=object)
        flat[:] = draw(st.lists(items, min_size=size, max_size=size))
        return name, flat.reshape(shape)
    dtype = numpy_dtype(name)
    if name == "bool" or not json:
        raw = draw(st.binary(min_size=size * dtype.itemsize, max_size=size * dtype.itemsize))
        array = np.frombuffer(raw, np.uint8) & 1 if name == "bool" else np.frombuffer(raw, dtype)
        return name, array.astype(dtype, copy=False).reshape(shape)
    if DTYPES[name].is_float:
        values: Any = st.floats(allow_nan=False, allow_infinity=False, width=8 * dtype.itemsize)
    else:
        values = st.integers(int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return name, np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype).reshape(
        shape
    )


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, tuple[str, Any, bool]]:
    """Tensors by name: dtype, values, and whether they travel as binary data."""
    found: dict[str, tuple[str, Any, bool]] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=4, unique=True)):
        binary = draw(st.booleans())
        dtype, array = draw(arrays(json=not binary))
        found[name] = (dtype, array, binary)
    return found


def signature_of(
    inputs: dict[str, tuple[str, Any, bool]], outputs: dict[str, tuple[str, Any, bool]]
) -> Signature:
    def specs(side: dict[str, tuple[str, Any, bool]]) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(name=n, dtype=d, shape=tuple(f"d{i}" for i in range(a.ndim)))
            for n, (d, a, _) in side.items()
        )

    dims = {f"d{i}": DimRange(min=0, max=9) for i in range(3)}
    return Signature(inputs=specs(inputs), outputs=specs(outputs), dims=dims)


def same(one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype == object:
        return bool(opened(one).ravel().tolist() == opened(other).ravel().tolist())
    return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())


ONE = {"y": ("float32", np.ones((1,), np.float32), True)}


@given(tensors(), st.text("ab1-", max_size=6), st.none() | st.integers(1, 10**9))
def test_what_the_client_writes_is_read_as_it_meant_it(
    sent: dict[str, tuple[str, Any, bool]], id: str, timeout: int | None
) -> None:
    inputs = []
    for name, (dtype, array, binary) in sent.items():
        one = triton.InferInput(name, list(array.shape), DTYPES[dtype].oip)
        inputs.append(one.set_data_from_numpy(array, binary_data=binary))
    body, length = InferenceServerClient.generate_request_body(
        inputs, request_id=id, timeout=timeout
    )
    request = decode_request(body, signature_of(sent, ONE), length)
    assert request.id == (id or None)
    assert request.timeout_seconds == (None if timeout is None else timeout / 1e6)
    assert list(request.tensors) == list(sent)
    for name, (_, array, _) in sent.items():
        assert same(request.tensors[name], array), name
    assert request.outputs == (RequestedOutput("y", binary=True),)


@given(tensors(), st.none() | st.text(max_size=6), st.sampled_from(["1", "12"]))
def test_what_is_answered_is_read_by_the_client_as_it_was(
    answered: dict[str, tuple[str, Any, bool]], id: str | None, version: str
) -> None:
    wanted = tuple(RequestedOutput(n, binary) for n, (_, _, binary) in answered.items())
    encoded = encode_response(
        "m",
        version,
        InferRequest(id, {}, wanted),
        {n: array for n, (_, array, _) in answered.items()},
        signature_of(ONE, answered),
    )
    body = b"".join(encoded.parts)
    result: Any = InferenceServerClient.parse_response_body(body, header_length=encoded.json_length)
    head = result.get_response()
    assert head.get("id") == id
    assert (head["model_name"], head["model_version"]) == ("m", version)
    assert [o["name"] for o in head["outputs"]] == list(answered)
    for name, (dtype, array, binary) in answered.items():
        got = result.as_numpy(name)
        if dtype == "string" and not binary:
            assert [item.encode() for item in got.ravel()] == array.ravel().tolist()
        else:
            assert same(got, array), name


@given(st.binary(max_size=40), st.integers(0, 60))
def test_arbitrary_bytes_are_refused_and_nothing_else(data: bytes, length: int) -> None:
    signature = signature_of(ONE, ONE)
    for given_length in (None, length):
        try:
            request = decode_request(data, signature, given_length)
        except RequestError:
            continue
        # Only the raw bytes of the one input need no form.
        assert given_length == 0
        assert request.tensors["y"].tobytes() == data


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.sampled_from(["FP32", "BYTES", "x", "y", 2**63, 2**64 - 1, -1, 0, 1e308]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
WHOLE = {
    "id": "1",
    "parameters": {"timeout": 5, "binary_data_output": True, "priority": 1},
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4]]},
        {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["a"], "parameters": {"a": 1}},
        {"name": "b", "datatype": "INT64", "shape": [1], "parameters": {"binary_data_size": 8}},
    ],
    "outputs": [{"name": "y", "parameters": {"binary_data": False, "classification": 0}}],
}
SIGNATURE = Signature(
    inputs=(
        TensorSpec(name="x", dtype="float32", shape=("n", 2)),
        TensorSpec(name="s", dtype="string", shape=(1,)),
        TensorSpec(name="b", dtype="int64", shape=(1,)),
    ),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("n",)),),
    dims={"n": DimRange(min=1, max=9)},
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path]
    if isinstance(value, dict | list):
        keys = value if isinstance(value, dict) else range(len(value))
        for key in keys:
            found += places(value[key], (*path, key))
    return found


@settings(max_examples=400)
@given(st.sampled_from(places(WHOLE)[1:]), JSON_VALUES, st.booleans())
@example(("inputs", 0, "shape"), [2**62, 2**62], False)
@example(("inputs", 0, "shape"), [0] * 33, False)
@example(("inputs", 0, "data"), [[[]]], False)
@example(("inputs", 0, "datatype"), "FP16", False)
@example(("inputs", 2, "parameters", "binary_data_size"), 2**70, False)
@example(("parameters", "timeout"), True, False)
@example(("id",), "\x00", False)
@example(("outputs",), {}, False)
def test_one_thing_wrong_is_refused_or_harmless(
    place: tuple[Any, ...], value: Any, remove: bool
) -> None:
    whole = copy.deepcopy(WHOLE)
    owner: Any = whole
    for key in place[:-1]:
        owner = owner[key]
    if remove:
        del owner[place[-1]]
    else:
        owner[place[-1]] = value
    head = json.dumps(whole).encode()
    blob = struct.pack("<q", 7)
    try:
        request = decode_request(head + blob, SIGNATURE, len(head))
    except RequestError:
        return
    for array in request.tensors.values():
        assert isinstance(array, np.ndarray)
    assert {o.name for o in request.outputs} <= {"y"}
    assert request.timeout_seconds is None or request.timeout_seconds > 0


def test_raw_bytes_are_one_string_where_the_input_is_of_strings() -> None:
    strings = Signature(
        inputs=(TensorSpec(name="s", dtype="string", shape=("n", 1)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("n",)),),
        dims={"n": DimRange(min=1, max=9)},
    )
    for data in (b"", b"\x05\x00\x00\x00hello", b"\xff\x00"):
        request = decode_request(data, strings, 0)
        assert request.tensors["s"].shape == (1, 1)
        assert opened(request.tensors["s"]).ravel().tolist() == [data]
        assert request.outputs == (RequestedOutput("y", binary=True),)


@pytest.mark.parametrize(
    ("shape", "size", "expected"),
    [
        (("n",), 12, (3,)),
        (("n",), 0, (0,)),
        (("n", 4), 32, (2, 4)),
        (("n", "m"), 12, (1, 3)),
        ((2, "m"), 16, (2, 2)),
        ((2, 3), 24, (2, 3)),
        (("n", 4), 12, None),
        (("n",), 13, None),
        ((2, 3), 20, None),
        ((2, "m", "n"), 24, None),
        (("n", "m", "k"), 24, None),
    ],
)
def test_the_shape_of_raw_bytes_is_told_by_their_number(
    shape: tuple[Any, ...], size: int, expected: tuple[int, ...] | None
) -> None:
    signature = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=shape),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=()),),
        dims={d: DimRange(min=0, max=9) for d in shape if isinstance(d, str)},
    )
    if expected is None:
        with pytest.raises(RequestError, match="x"):
            decode_request(bytes(size), signature, 0)
    else:
        assert decode_request(bytes(size), signature, 0).tensors["x"].shape == expected
