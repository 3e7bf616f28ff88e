"""From several requests to one call, and from its outputs to each one's answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.protocols import Tensors
from modelops.signature import Signature
from modelops_servers.batching.item import Item
from modelops_servers.batching.layout import cut, layout_of


def merge(signature: Signature, items: Sequence[Item]) -> Tensors:
    """Return the inputs of one call: rows one below the other, padded only where lengths differ.

    A lone item's tensors are returned as they are.
    """
    if len(items) == 1:
        return items[0].tensors
    layout = layout_of(signature)
    lengths = () if layout.padding is None else [item.length for item in items]
    longest = max(lengths, default=0)
    level = all(length == longest for length in lengths)
    merged: dict[str, npt.NDArray[Any]] = {}
    for name, padded, value in layout.inputs:
        parts = [item.tensors[name] for item in items]
        if level or not padded:
            merged[name] = np.concatenate(parts)
        else:
            merged[name] = _padded(parts, padded, longest, value)
    return merged


def split(
    signature: Signature, items: Sequence[Item], outputs: Tensors
) -> list[dict[str, npt.NDArray[Any]]]:
    """Return each item's own outputs, cut back to its own rows and length: views, not copies."""
    if len(items) == 1:
        return [dict(outputs)]
    layout = layout_of(signature)
    longest = 0 if layout.padding is None else max([item.length for item in items])
    cut_back = [(name, padded) for name, _, _, padded in layout.outputs if padded]
    answers: list[dict[str, npt.NDArray[Any]]] = []
    start = 0
    for item in items:
        stop = start + item.rows
        answer = {name: array[start:stop] for name, array in outputs.items()}
        if cut_back and item.length != longest:
            for name, padded in cut_back:
                answer[name] = answer[name][cut(padded, item.length)]
        answers.append(answer)
        start = stop
    return answers


def _padded(
    parts: list[npt.NDArray[Any]], axes: tuple[int, ...], longest: int, value: float | None
) -> npt.NDArray[Any]:
    if value is None:
        raise ValueError("an input without a padding value cannot be padded")
    shape = [sum([part.shape[0] for part in parts]), *parts[0].shape[1:]]
    for axis in axes:
        shape[axis] = longest
    filled = np.full(shape, value, dtype=parts[0].dtype)
    start = 0
    for part in parts:
        stop = start + part.shape[0]
        if part.ndim == 2:  # token ids and masks, almost always
            filled[start:stop, : part.shape[1]] = part
        else:
            filled[start:stop][cut(axes, part.shape[axes[0]])] = part
        start = stop
    return filled
