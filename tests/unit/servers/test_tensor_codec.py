"""Tensors on the wire: every dtype, bit for bit, and nothing guessed."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import RequestError
from modelops_servers.dataplane.packed_strings import opened
from modelops_servers.front.tensor_codec import (
    check_strings,
    from_binary,
    from_json,
    to_binary,
    to_json,
)

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@st.composite
def tensors(draw: st.DrawFn, names: tuple[str, ...] = tuple(DTYPES)) -> tuple[str, Any]:
    name = draw(st.sampled_from(names))
    shape = draw(SHAPES)
    size = int(np.prod(shape, dtype=int))
    if name == "string":
        array = np.empty(size, dtype=object)
        array[:] = draw(st.lists(st.binary(max_size=9), min_size=size, max_size=size))
        return name, array.reshape(shape)
    if name == "bool":
        items = draw(st.lists(st.booleans(), min_size=size, max_size=size))
        return name, np.array(items, dtype=bool).reshape(shape)
    nbytes = size * DTYPES[name].itemsize
    blob = draw(st.binary(min_size=nbytes, max_size=nbytes))
    return name, np.frombuffer(blob, numpy_dtype(name)).reshape(shape)


@given(tensors(), st.integers(0, 7))
def test_s23_binary_round_trips_bit_for_bit_at_any_offset(
    tensor: tuple[str, Any], offset: int
) -> None:
    name, array = tensor
    blob = bytes(to_binary(array))
    view = memoryview(bytes(offset) + blob)[offset:]
    back = from_binary("x", DTYPES[name], array.shape, view)
    assert back.shape == array.shape
    assert back.dtype == numpy_dtype(name)
    assert back.flags.aligned
    assert bytes(to_binary(back)) == blob
    if name == "string":
        check_strings("x", back.packed, back.size)
        assert opened(back).tolist() == array.tolist()


@given(tensors(tuple(n for n in DTYPES if n not in ("float16", "bfloat16", "string"))))
def test_json_round_trips_what_is_finite(tensor: tuple[str, Any]) -> None:
    name, array = tensor
    text = orjson.dumps(to_json("y", array, DTYPES[name]), option=orjson.OPT_SERIALIZE_NUMPY)
    values = orjson.loads(text)
    if DTYPES[name].is_float and not np.isfinite(array).all():
        assert [v is None for v in values] == (~np.isfinite(array.ravel())).tolist()
        return
    back = from_json("x", DTYPES[name], array.shape, values)
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("int8", [128]),
        ("int8", [-129]),
        ("uint8", [-1]),
        ("uint64", [-1]),
        ("int64", [2**63]),
        ("uint64", [1.8446744073709552e19]),
        ("int32", [1.0]),
        ("int32", [True]),
        ("int32", ["1"]),
        ("bool", [1]),
        ("bool", ["true"]),
        ("float32", ["1.5"]),
        ("float32", [True]),
        ("float32", [None]),
        ("float32", [3.5e38]),
        ("float32", [{"a": 1}]),
        ("string", [1]),
        ("string", [None]),
        ("float16", [1.0]),
        ("bfloat16", [1.0]),
    ],
)
def test_h3_a_json_value_of_another_kind_is_refused_by_input(name: str, data: list[Any]) -> None:
    with pytest.raises(RequestError, match="'x'"):
        from_json("x", DTYPES[name], (1,), data)


def test_extremes_are_kept() -> None:
    assert from_json("x", DTYPES["uint64"], (1,), [2**64 - 1]).tolist() == [2**64 - 1]
    assert from_json("x", DTYPES["int64"], (2,), [-(2**63), 2**63 - 1]).tolist()[0] == -(2**63)
    assert from_json("x", DTYPES["float32"], (1,), [2**53]).tolist() == [2.0**53]


@pytest.mark.parametrize(
    ("shape", "data"),
    [((2, 2), [[1, 2], [3]]), ((2, 2), [[1, 2, 3, 4]]), ((2, 2), [[1, 2], 3]),
     ((4,), [[1, 2], [3, 4]]), ((2, 1, 2), [[1, 2], [3, 4]]), ((1,), []), ((0,), [1])],
)  # fmt: skip
def test_h3_nesting_that_is_not_the_shape_is_refused(shape: tuple[int, ...], data: Any) -> None:
    with pytest.raises(RequestError, match="'x'"):
        from_json("x", DTYPES["int64"], shape, data)


@pytest.mark.parametrize(
    ("name", "shape", "blob"),
    [
        ("float32", (2,), bytes(7)),
        ("float32", (2,), bytes(9)),
        ("bool", (2,), b"\x01\x02"),
        ("string", (1,), b"\x05\x00\x00\x00abc"),
        ("string", (1,), b"\xff\xff\xff\xffabc"),
        ("string", (1,), b"\x01\x00"),
        ("string", (2,), b"\x01\x00\x00\x00a"),
        ("string", (1,), b"\x01\x00\x00\x00ab"),
        ("string", (0,), b"\x00\x00\x00\x00"),
        ("float32", (0, 2**63 - 1), b""),
        ("string", (0, 2**63 - 1), b""),
        ("string", (0, 2**70), b""),
        ("string", (2**70,), b""),
        ("string", (2**40,), bytes(8)),
    ],
)
def test_h3_bytes_that_are_not_the_tensor_are_refused(
    name: str, shape: tuple[int, ...], blob: bytes
) -> None:
    def decode() -> None:
        array = from_binary("x", DTYPES[name], shape, memoryview(blob))
        check_strings("x", array.packed, array.size)

    with pytest.raises(RequestError, match="'x'"):
        decode()


def test_binary_tensors_are_views_of_the_body() -> None:
    body = memoryview(np.arange(16, dtype="f4").tobytes())
    array = from_binary("x", DTYPES["float32"], (4, 4), body)
    assert np.shares_memory(array, np.frombuffer(body, "f4"))
