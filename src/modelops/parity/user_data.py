"""A user's own inputs: ``.npz``, ``.jsonl``, or a folder of ``.npz``; checked item by item."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import InputError, RequestError
from modelops.parity.inputs import Arrays
from modelops.parity.npz import read_npz
from modelops.signature import DimRange, Signature, TensorSpec

Array = npt.NDArray[Any]
Encode = Callable[[str], Arrays]
"""From a text to the inputs of one item, without a batch dim."""

MOST_BYTES = 4 * 2**30
_TEXT = "text"


@dataclass(frozen=True)
class UserData:
    """Items in the file's order.

    ``items`` hold each item's inputs as one call takes them: under a batch dim with a batch of
    one. ``extras`` hold what is no input of the model, such as labels, stacked over all items.
    """

    name: str
    items: tuple[Arrays, ...]
    extras: Arrays


@dataclass(frozen=True)
class _Part:
    """What one file, or one line, holds: its items, and its extras stacked over them."""

    where: str
    items: list[Arrays]
    extras: dict[str, Array]


def leading_dim(signature: Signature) -> str | None:
    """Return the symbolic dim that leads every input, along which items are stacked."""
    leads = {t.shape[0] if t.shape else None for t in signature.inputs}
    lead = leads.pop() if len(leads) == 1 else None
    return lead if isinstance(lead, str) else None


def read_user_data(
    path: Path, signature: Signature, *, flag: str = "--data", encode: Encode | None = None
) -> UserData:
    """Read ``path`` and check every item against ``signature``.

    An ``.npz`` holds an array for each input, stacked over the items (along the batch dim, where
    the model has one); a folder holds such files. A line of a ``.jsonl`` is one item:
    ``{"input": list, …}``, without a batch dim, or ``{"text": "…"}``. Arrays and keys that are no
    input are kept as ``extras``. Nothing is unpickled.

    Args:
        path: the file or folder.
        signature: what the model takes.
        flag: the option that named the file, for messages.
        encode: the source's tokenizer; None where it has none.

    Raises:
        InputError: it is no such file, or an item does not fit; item and input are named.
        UnsafeInputError: it holds pickled objects.
    """
    parts = list(_parts(path, signature, flag, encode))
    items = [item for part in parts for item in part.items]
    if not items:
        raise InputError(f"{flag}: {path.name} holds no item")
    return UserData(path.name, tuple(items), _joined(parts))


def _parts(path: Path, signature: Signature, flag: str, encode: Encode | None) -> Iterator[_Part]:
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.suffix == ".npz")
        if not files:
            raise InputError(f"{flag}: the folder {path.name} holds no .npz file")
        room = MOST_BYTES
        for file in files:
            arrays = read_npz(file, most_bytes=room)
            room -= sum(a.nbytes for a in arrays.values())
            yield _of_arrays(file.name, arrays, signature)
    elif not path.is_file():
        raise InputError(f"{flag}: there is no file or folder {path}")
    elif path.suffix == ".npz":
        yield _of_arrays(path.name, read_npz(path, most_bytes=MOST_BYTES), signature)
    elif path.suffix == ".jsonl":
        yield from _of_lines(path, signature, encode)
    else:
        raise InputError(
            f"{flag}: {path.name} is of no kind that is read",
            hint="give a .npz, a .jsonl, or a folder of .npz",
        )


def _of_arrays(where: str, arrays: Arrays, signature: Signature) -> _Part:
    lead = leading_dim(signature)
    inputs: Arrays = {}
    one_call = False
    for spec in signature.inputs:
        if spec.name not in arrays:
            raise InputError(
                f"{where}: input {spec.name!r} is missing; it holds {', '.join(arrays) or 'none'}"
            )
        array = arrays[spec.name]
        one_call |= lead is None and array.ndim == len(spec.shape)
        inputs[spec.name] = array
    if one_call:
        inputs = {name: a[None] for name, a in inputs.items()}
    counts = {name: a.shape[0] if a.ndim else 0 for name, a in inputs.items()}
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"{n} {c}" for n, c in counts.items())
        raise InputError(f"{where}: the inputs are of different numbers of items: {shown}")
    count = next(iter(counts.values()))
    typed = {
        t.name: _typed(t, inputs[t.name], lambda i: f"{where}, item {i}") for t in signature.inputs
    }
    items = [
        {n: a[i : i + 1] if lead is not None else a[i] for n, a in typed.items()}
        for i in range(count)
    ]
    if items:
        # All items of a stack are of one shape.
        _fits(items[0], signature, f"{where}, item 0")
    extras = {n: a for n, a in arrays.items() if n not in inputs}
    if one_call:
        extras = {n: a[None] for n, a in extras.items()}
    for name, extra in extras.items():
        if not extra.ndim or extra.shape[0] != count:
            raise InputError(
                f"{where}: {name!r} is no input, and not one value for each of the {count} items: "
                f"its shape is {list(extra.shape)}"
            )
    return _Part(where, items, extras)


def _of_lines(path: Path, signature: Signature, encode: Encode | None) -> Iterator[_Part]:
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.name} is over {MOST_BYTES >> 30} GiB")
    lead = leading_dim(signature)
    names = {t.name for t in signature.inputs}
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path.name}, line {number}"
            fields = _object(line, where)
            item: Arrays
            if _TEXT in fields and _TEXT not in names:
                item = _encoded(fields.pop(_TEXT), where, encode)
                item = {n: a for n, a in item.items() if n in names}
            else:
                item = {
                    t.name: _array(t, fields.pop(t.name), where)
                    for t in signature.inputs
                    if t.name in fields
                }
            for spec in signature.inputs:
                if spec.name not in item:
                    raise InputError(f"{where}: input {spec.name!r} is missing")
            if lead is not None:
                item = {n: a[None] for n, a in item.items()}
            stacked = {n: a if lead is not None else a[None] for n, a in item.items()}
            for spec in signature.inputs:
                _typed(spec, stacked[spec.name], lambda _, where=where: where)  # type: ignore[misc]
            _fits(item, signature, where)
            yield _Part(where, [item], {n: _extra(v, f"{where}: {n!r}") for n, v in fields.items()})


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} is no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise InputError(f"{where} is no object of inputs")
    return fields


def _encoded(text: Any, where: str, encode: Encode | None) -> Arrays:
    if not isinstance(text, str):
        raise InputError(f"{where}: text is no string")
    if encode is None:
        raise InputError(
            f"{where} is a text, and the model has no tokenizer", hint="give its inputs by name"
        )
    return encode(text)


def _array(spec: TensorSpec, value: Any, where: str) -> Array:
    """Return a JSON value as a tensor of the input's dtype, where each number is one of it."""
    wanted = DTYPES[spec.dtype]
    try:
        made = np.asarray(value)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{where}, input {spec.name!r}: {error}") from error
    if made.size == 0:
        return made.astype(numpy_dtype(spec.dtype))
    kinds = "fiu" if wanted.is_float else "b" if spec.dtype == "bool" else "iu"
    if spec.dtype == "string":
        if made.dtype.kind != "U":
            raise InputError(f"{where}, input {spec.name!r}: its values are no strings")
        return np.array([v.encode() for v in made.ravel()], dtype=object).reshape(made.shape)
    if made.dtype.kind not in kinds:
        raise InputError(f"{where}, input {spec.name!r}: its values are no {spec.dtype}")
    if not wanted.is_float and spec.dtype != "bool":
        allowed = np.iinfo(numpy_dtype(spec.dtype))
        if int(made.min()) < allowed.min or int(made.max()) > allowed.max:
            raise InputError(f"{where}, input {spec.name!r}: a value is outside {spec.dtype}")
    with np.errstate(over="ignore"):
        return made.astype(numpy_dtype(spec.dtype))


def _typed(spec: TensorSpec, array: Array, where: Callable[[int], str]) -> Array:
    """Return a stack of one input in the input's dtype; no value may change by that.

    Raises:
        InputError: another dtype, NaN, or an index beyond the input's bounds.
    """
    wanted = numpy_dtype(spec.dtype)
    if spec.dtype == "bfloat16" and array.dtype == np.dtype("V2"):
        array = array.view(wanted)  # as numpy writes it
    if spec.dtype == "string" and array.dtype.kind in "SU":
        flat = [v.encode() if isinstance(v, str) else v for v in array.ravel().tolist()]
        array = np.array(flat, dtype=object).reshape(array.shape)
    if array.dtype != wanted:
        if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, wanted, "safe"):
            raise InputError(
                f"{where(0)}, input {spec.name!r}: dtype {array.dtype} where the model takes "
                f"{spec.dtype}",
                hint=f"convert it first, if nothing is lost: array.astype({spec.dtype!r})",
            )
        array = array.astype(wanted)
    if not array.size:
        return array
    if DTYPES[spec.dtype].is_float:
        wrong, why = np.isnan(array), "holds NaN"
    elif spec.bounds is not None and spec.dtype not in ("bool", "string"):
        low, high = spec.bounds
        wrong, why = (array < low) | (array > high), f"holds a value outside {low}..{high}"
    else:
        return array
    if wrong.any():
        raise InputError(f"{where(int(np.argwhere(wrong)[0][0]))}, input {spec.name!r}: {why}")
    return array


def _fits(item: Arrays, signature: Signature, where: str) -> None:
    lead = leading_dim(signature)
    if lead is not None:
        # One item is no batch yet.
        one = DimRange(min=1, max=max(signature.dims[lead].max, 1))
        signature = signature.model_copy(update={"dims": {**signature.dims, lead: one}})
    try:
        signature.bind({name: array.shape for name, array in item.items()})
    except RequestError as error:
        raise InputError(f"{where}: {error.message}") from error


def _extra(value: Any, what: str) -> Array:
    try:
        made = np.asarray([value])
    except (ValueError, OverflowError) as error:
        raise InputError(f"{what} is neither an input nor a list of one shape: {error}") from error
    if made.dtype.kind not in "biufU":
        raise InputError(f"{what} is no input, and neither numbers nor text")
    return made


def _joined(parts: list[_Part]) -> Arrays:
    first = parts[0]
    found: Arrays = {}
    for part in parts:
        if part.extras.keys() != first.extras.keys():
            odd = min(part.extras.keys() ^ first.extras.keys())
            raise InputError(
                f"{odd!r}, which is no input of the model, is in only one of {first.where} and "
                f"{part.where}"
            )
    for name in first.extras:
        found[name] = stacked([row for part in parts for row in part.extras[name]])
    return found


def stacked(rows: list[Array]) -> Array:
    """Return ``rows`` as one array; of objects, where they are of different shapes."""
    if len({np.shape(row) for row in rows}) == 1:
        return np.stack([np.asarray(row) for row in rows])
    found = np.empty(len(rows), dtype=object)
    for position, row in enumerate(rows):
        found[position] = row
    return found


def inputs_of(data: UserData, signature: Signature) -> Arrays:
    """Return every input stacked over all items, as a metric sees it."""
    alone = leading_dim(signature) is None
    return {
        t.name: stacked([i[t.name] if alone else i[t.name][0] for i in data.items])
        for t in signature.inputs
    }
