"""A user's items as calls of a model: alike lengths together, within the memory and the range."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from modelops.errors import InputError
from modelops.parity.inputs import Arrays
from modelops.parity.user_data import UserData, leading_dim
from modelops.signature import Signature

_MOST_ITEMS = 32


@dataclass(frozen=True)
class Batch:
    """One call, and which of the user's items it holds, in the order of its rows."""

    items: tuple[int, ...]
    inputs: Arrays


def batches(
    data: UserData, signature: Signature, *, nbytes: Callable[[dict[str, int]], int], budget: int
) -> list[Batch]:
    """Return calls that hold every item once.

    Items of different lengths share a call only where the signature says how to pad.

    Args:
        data: the items.
        signature: what the model takes.
        nbytes: estimated bytes that one call needs at given sizes.
        budget: bytes that one call may need.

    Raises:
        InputError: one item alone needs more than the budget, or too few are of one length.
    """
    lead = leading_dim(signature)
    if lead is None:
        return [Batch((n,), item) for n, item in enumerate(data.items)]
    allowed = signature.dims[lead]
    order = sorted(range(len(data.items)), key=lambda n: _sizes(data.items[n], signature))
    found: list[Batch] = []
    group: list[int] = []
    for number in order:
        wider = [*group, number]
        if group and (
            len(wider) > min(allowed.max, _MOST_ITEMS)
            or not _together(data, signature, wider)
            or nbytes(_common(data, signature, wider)) > budget
        ):
            found.append(_batch(data, signature, group))
            wider = [number]
        group = wider
    found.append(_batch(data, signature, group))
    for batch in found:
        if len(batch.items) < allowed.min:
            raise InputError(
                f"{data.name}: item {batch.items[0]} has too few of its lengths to make a batch "
                f"of {lead}={allowed.min}, the smallest that the model takes"
            )
        sizes = signature.bind({n: a.shape for n, a in batch.inputs.items()})
        if (need := nbytes(sizes)) > budget:
            raise InputError(
                f"{data.name}: item {batch.items[0]} alone needs about {need / 2**20:,.0f} MiB",
                hint="raise --memory-budget",
            )
    return found


def _sizes(item: Arrays, signature: Signature) -> tuple[int, ...]:
    return tuple(size for t in signature.inputs for size in item[t.name].shape)


def _common(data: UserData, signature: Signature, numbers: Sequence[int]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for number in numbers:
        for spec in signature.inputs:
            for dim, size in zip(spec.shape, data.items[number][spec.name].shape, strict=True):
                if isinstance(dim, str):
                    sizes[dim] = max(size, sizes.get(dim, 0))
    lead = leading_dim(signature)
    return sizes | ({lead: len(numbers)} if lead is not None else {})


def _together(data: UserData, signature: Signature, numbers: Sequence[int]) -> bool:
    padded = signature.padding.dim if signature.padding is not None else None
    first, last = data.items[numbers[0]], data.items[numbers[-1]]
    for spec in signature.inputs:
        pairs = zip(spec.shape, first[spec.name].shape, last[spec.name].shape, strict=True)
        if any(a != b for dim, a, b in pairs if dim != padded):
            return False
        # An input that has the dim and no value to pad with cannot be made longer.
        if padded in spec.shape and (
            signature.padding is None or spec.name not in signature.padding.values
        ):
            axis = spec.shape.index(padded)
            if first[spec.name].shape[axis] != last[spec.name].shape[axis]:
                return False
    return True


def _batch(data: UserData, signature: Signature, numbers: Sequence[int]) -> Batch:
    sizes = _common(data, signature, numbers)
    inputs: Arrays = {}
    for spec in signature.inputs:
        rows = [data.items[n][spec.name] for n in numbers]
        if any(row.shape != rows[0].shape for row in rows):
            fill = signature.padding.values[spec.name] if signature.padding is not None else 0
            wanted = spec.sized(sizes)[1:]
            rows = [
                np.pad(
                    row,
                    [(0, 0), *((0, w - h) for w, h in zip(wanted, row.shape[1:], strict=True))],
                    constant_values=fill,
                )
                for row in rows
            ]
        inputs[spec.name] = np.concatenate(rows)
    return Batch(tuple(numbers), inputs)
