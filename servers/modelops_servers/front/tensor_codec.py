"""One tensor between its forms on the wire (JSON values, binary data) and numpy.

Binary tensors are views over the body wherever numpy can look at it in place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.dtypes import DType, numpy_dtype
from modelops.errors import RequestError
from modelops_servers.dataplane import strings
from modelops_servers.dataplane.packed_strings import PackedStrings, opened, packed

Array = npt.NDArray[Any]

_NO_JSON = ("float16", "bfloat16")
_SHOWN = 80
_JSON_KINDS: dict[str, set[type]] = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}


def from_binary(name: str, dtype: DType, shape: Sequence[int], blob: memoryview) -> Array:
    """Return the tensor that ``blob`` holds, a view over it where alignment allows.

    Strings stay packed, and whether ``blob`` holds them is for ``check_strings`` to say.

    Raises:
        RequestError: the bytes are not those of such a tensor.
    """
    count = math.prod(shape)
    if dtype.itemsize == 0:
        return _packed(name, blob, shape)
    if len(blob) != count * dtype.itemsize:
        raise RequestError(
            f"input {shown(name)}: {dtype.oip} of shape {list(shape)} takes "
            f"{count * dtype.itemsize} bytes, not {len(blob)}"
        )
    raw = np.frombuffer(blob, np.uint8)
    if dtype.name == "bool":
        if count and raw.max() > 1:
            raise RequestError(f"input {shown(name)}: a BOOL is the byte 0 or 1")
        return _reshaped(name, raw.view(np.bool_), shape)
    array = raw.view(numpy_dtype(dtype.name)) if count else np.empty(0, numpy_dtype(dtype.name))
    return _reshaped(name, array if array.flags.aligned else array.copy(), shape)


def check_strings(name: str, blob: memoryview, count: int) -> None:
    """Walk over the binary data of an input of ``count`` strings.

    Raises:
        RequestError: it does not hold them, or more than them.
    """
    try:
        strings.check(blob, count)
    except ValueError as error:
        raise RequestError(f"input {shown(name)}: {error}") from error


def one_string(name: str, rank: int, item: memoryview) -> Array:
    """Return the tensor of ``rank`` whose only element is ``item``.

    Raises:
        RequestError: it is longer than binary data can say.
    """
    if len(item) >= 2 ** (8 * strings.LENGTH_BYTES):
        raise RequestError(f"input {shown(name)}: {len(item)} bytes are too many for one string")
    blob = np.empty(strings.LENGTH_BYTES + len(item), np.uint8)
    blob[: strings.LENGTH_BYTES] = np.array([len(item)], "<u4").view(np.uint8)
    blob[strings.LENGTH_BYTES :] = np.frombuffer(item, np.uint8)
    return _packed(name, blob.data, (1,) * rank)


def to_binary(array: Array) -> bytes | memoryview:
    """Return a tensor's bytes on the wire: little-endian, row-major, strings with u32 lengths."""
    if array.dtype == object:
        return packed(array)
    if array.size == 0:
        return b""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def from_json(name: str, dtype: DType, shape: tuple[int, ...], data: Any) -> Array:
    """Return the tensor whose values ``data`` lists, flat or nested as ``shape``.

    Raises:
        RequestError: a value is none of ``dtype``, or the values are not of ``shape``.
    """
    if dtype.name in _NO_JSON:
        raise RequestError(
            f"input {shown(name)}: {dtype.oip} has no form in JSON; send it as binary data"
        )
    if not isinstance(data, list):
        raise RequestError(f'input {shown(name)}: "data" is a list')
    flat = _flattened(name, data, shape)
    count = math.prod(shape)
    if len(flat) != count:
        raise RequestError(
            f"input {shown(name)}: shape {list(shape)} takes {count} values, not {len(flat)}"
        )
    kinds = set(map(type, flat))
    if dtype.name == "string":
        _only(name, dtype, kinds, {str})
        texts = np.empty(count, dtype=object)
        texts[:] = [text.encode() for text in flat]
        return _reshaped(name, texts, shape)
    _only(name, dtype, kinds, _JSON_KINDS[np.dtype(dtype.name).kind])
    try:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype=np.dtype(dtype.name))
    except OverflowError as error:
        raise RequestError(
            f"input {shown(name)}: a value is outside the range of {dtype.oip}"
        ) from error
    if dtype.is_float and not np.isfinite(array).all():
        raise RequestError(f"input {shown(name)}: a value is outside the range of {dtype.oip}")
    return _reshaped(name, array, shape)


def to_json(name: str, array: Array, dtype: DType) -> Any:
    """Return the values, row-major, for orjson, which writes non-finite numbers as null.

    Raises:
        RequestError: JSON has no form for them.
    """
    if dtype.name in _NO_JSON:
        raise RequestError(
            f"output {name!r} is {dtype.oip}, which has no form in JSON; "
            "ask for it with binary_data"
        )
    if dtype.name != "string":
        return np.ascontiguousarray(array).reshape(-1)
    try:
        return [bytes(item).decode() for item in opened(array).ravel()]
    except UnicodeDecodeError as error:
        raise RequestError(
            f"output {name!r} holds bytes that are no text; ask for it with binary_data"
        ) from error


def shown(value: Any) -> str:
    """What a client sent, cut and escaped, for a message."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _only(name: str, dtype: DType, found: set[type], allowed: set[type]) -> None:
    if strange := found - allowed:
        kind = {type(None): "null", dict: "an object", list: "a list"}.get(
            kind := min(strange, key=lambda k: k.__name__), f"a {kind.__name__}"
        )
        raise RequestError(f"input {shown(name)}: {kind} among its values is no {dtype.oip}")


def _flattened(name: str, data: list[Any], shape: tuple[int, ...]) -> list[Any]:
    """Return row-major values of ``data``, which is either flat or nested just as ``shape``."""
    if not data or type(data[0]) is not list:
        return data
    level = data
    for depth, size in enumerate(shape[1:], start=1):
        if any(type(item) is not list or len(item) != size for item in level):
            raise RequestError(
                f"input {shown(name)}: its nested lists do not have the shape {list(shape)} "
                f"(at depth {depth})"
            )
        level = list(itertools.chain.from_iterable(level))
    return level


def _packed(name: str, blob: memoryview, shape: Sequence[int]) -> Array:
    try:
        return PackedStrings.of(blob, shape)
    except (ValueError, OverflowError) as error:
        raise _no_shape(name, shape) from error


def _reshaped(name: str, array: Array, shape: Sequence[int]) -> Array:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise _no_shape(name, shape) from error


def _no_shape(name: str, shape: Sequence[int]) -> RequestError:
    return RequestError(f"input {shown(name)}: no tensor has shape {list(shape)}")
