"""What a signature says about sharing a call: which axes lead, which pad, which must be equal."""

from __future__ import annotations

import re

from modelops.config import BatchingConfig
from modelops.dtypes import numpy_dtype
from modelops.signature import Signature

Place = tuple[str, int]
"""An input's name and one of its axes, where the size of a dim can be read."""

_WORD = re.compile(r"[A-Za-z_]\w*")
_REMEMBERED = 64


class Layout:
    """A signature, looked at once so that a call costs no more than its arrays."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.batch = signature.batch_dim
        self.padding = padding = signature.padding
        dim = None if padding is None else padding.dim
        self.inputs = [
            (t.name, _axes(t.shape, dim), None if padding is None else padding.values.get(t.name))
            for t in signature.inputs
        ]
        """Name, the axes that are padded, and with what."""
        self.outputs = [
            (t.name, numpy_dtype(t.dtype), len(t.shape), _axes(t.shape, dim))
            for t in signature.outputs
        ]
        """Name, dtype, rank, and the axes that are cut back."""
        self.places: dict[str, Place] = {}
        """Where the size of each of the inputs' symbolic dims can be read."""
        for spec in signature.inputs:
            for axis, size in enumerate(spec.shape):
                if isinstance(size, str):
                    self.places.setdefault(size, (spec.name, axis))
        self.apart = _why_apart(signature)
        """Why two requests can never share a call, by the signature alone; None where they can."""
        self.pads = padding is not None and _pads(signature, padding.dim)
        """Whether a shorter item can join a longer one, and its answer be cut back afterwards."""


_layouts: dict[int, Layout] = {}


def layout_of(signature: Signature) -> Layout:
    """Return the layout of ``signature``, remembered by identity: hashing one costs far more."""
    found = _layouts.get(id(signature))
    if found is None or found.signature is not signature:
        if len(_layouts) >= _REMEMBERED:
            _layouts.clear()
        found = _layouts[id(signature)] = Layout(signature)
    return found


def row_limit(signature: Signature, config: BatchingConfig) -> int:
    """Return the most rows of one call that several requests share; 1 where they never do."""
    layout = layout_of(signature)
    if layout.batch is None or layout.apart is not None:
        return 1
    return min(config.max_size, signature.dims[layout.batch].max)


def cut(axes: tuple[int, ...], length: int) -> tuple[slice, ...]:
    """Return the index that keeps ``length`` positions along ``axes``."""
    return tuple(slice(0, length if n in axes else None) for n in range(max(axes) + 1))


def _axes(shape: tuple[int | str, ...], dim: str | None) -> tuple[int, ...]:
    return tuple(axis for axis, size in enumerate(shape) if size == dim)


def _why_apart(signature: Signature) -> str | None:
    batch = signature.batch_dim
    if batch is None:
        return "no symbolic dim leads every input and output"
    if signature.dims[batch].max < 2 * max(1, signature.dims[batch].min):
        return f"{batch} is at most {signature.dims[batch].max}: no two requests fit into one call"
    known = {d for t in signature.inputs for d in t.dynamic}
    for spec in (*signature.inputs, *signature.outputs):
        # An output's size may be an expression, such as "2*frames".
        used = {word for size in spec.shape[1:] for word in _WORD.findall(str(size))}
        if batch in used:
            return f"{spec} carries {batch} elsewhere than first"
        if foreign := used - known:
            return f"{spec} has the size {min(foreign)}, which no input determines"
    return None


def _pads(signature: Signature, dim: str) -> bool:
    values = signature.padding.values if signature.padding is not None else {}
    if any(
        dim in t.shape and (t.name not in values or t.dtype == "string") for t in signature.inputs
    ):
        return False
    # Of "2*frames" nobody can say which positions are an item's own.
    return not any(
        dim in _WORD.findall(str(size)) and size != dim
        for t in signature.outputs
        for size in t.shape
    )
