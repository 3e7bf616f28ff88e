"""Whether requests may share a call: what rows give together is what each gives alone.

A signature cannot say it. A model may subtract its batch's mean, quantise by its batch's largest
value, or number its rows; batching would then mix one caller's data into another's answer. So the
engine is asked, on this machine, before any request may join another.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.dtypes import DTYPES
from modelops.errors import ModelopsError
from modelops.parity import RandomInputs
from modelops.protocols import TensorEngine, Tensors
from modelops.signature import Signature, TensorSpec
from modelops_servers.batching.item import Item, ItemMaker
from modelops_servers.batching.layout import cut, layout_of
from modelops_servers.batching.merge import merge, split

_SECONDS = 2.0
_FEW, _MANY = 3, 8
_LONG, _SHORT = 24, 5
_OTHER = 9
_LARGEST_BYTES = 64 * 2**20
_LOUD, _LOUD_ROW = 64.0, 1

# Of the answers' RMS. Rounding differs with the size of a call by a few units (1e-6 in float32),
# but a GPU may use TF32, which rounds at 5e-4, for one size and not for another. What leaks from a
# row that is 64 times as loud is far above either.
_TOLERANCE = {"float64": 1e-7, "float32": 2e-3, "float16": 2e-2, "bfloat16": 5e-2}

Answer = dict[str, npt.NDArray[Any]]


class _ApartError(Exception):
    """Rows are not independent, or it could not be shown that they are."""


def rows_are_independent(
    engine: TensorEngine,
    signature: Signature,
    samples: Iterable[Tensors] = (),
    *,
    seconds: float = _SECONDS,
) -> str | None:
    """Return None where it was shown on this started engine, else the reason in words.

    Rows of distinct values, one of them far louder than the others, are run alone and in one call;
    so are rows of different lengths padded together, where the signature pads. While ``seconds``
    last, more rows and those of ``samples`` (inputs that are known to make sense) follow.
    """
    apart = layout_of(signature).apart
    if apart is not None:
        return apart
    trial = _Trial(engine, signature)
    until = time.monotonic() + seconds
    try:
        for probe in _probes(signature, samples):
            if probe.essential or time.monotonic() < until:
                trial.run(probe)
        trial.conclude()
    except _ApartError as reason:
        return str(reason)
    return None


@dataclass(frozen=True)
class _Probe:
    """Requests to run alone and together; nothing can be said without an ``essential`` one."""

    items: list[Item]
    essential: bool = False
    sample: bool = False


def _probes(signature: Signature, samples: Iterable[Tensors]) -> Iterator[_Probe]:
    rows = _Rows(signature)
    yield _Probe(rows.made(_FEW, seed=1), essential=True)
    yield _Probe(rows.made(_FEW, seed=2, ragged=True), essential=layout_of(signature).pads)
    yield _Probe(rows.made(_MANY, seed=3, ragged=True))
    for sample in samples:
        yield _Probe(rows.of(sample), sample=True)


class _Rows:
    """Makes single requests of a signature's least number of rows."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._layout = layout_of(signature)
        self._maker = ItemMaker(signature)
        self._batch = signature.batch_dim or ""
        allowed = signature.dims[self._batch]
        self._least = max(1, allowed.min)
        self._dtypes = {t.name: t.dtype for t in signature.inputs}
        self._most = allowed.max // self._least

    def made(self, count: int, seed: int, *, ragged: bool = False) -> list[Item]:
        """Return up to ``count`` requests of distinct values; of different lengths if ragged."""
        signature, padding = self._signature, self._signature.padding
        count = min(count, self._most)
        dims = {
            name: min(max(_OTHER, allowed.min), allowed.max)
            for name, allowed in signature.dims.items()
        }
        dims[self._batch] = count * self._least
        lengths = [dims[padding.dim]] * count if padding else [0] * count
        if padding is not None and ragged and self._layout.pads:
            allowed = signature.dims[padding.dim]
            long, short = (min(max(n, allowed.min), allowed.max) for n in (_LONG, _SHORT))
            dims[padding.dim] = long
            lengths = [int(n) for n in np.linspace(short, long, count)]
        if signature.nbytes(dims) > _LARGEST_BYTES:
            smallest = {name: max(1, allowed.min) for name, allowed in signature.dims.items()}
            dims = {**smallest, self._batch: dims[self._batch]}
            lengths = [dims[padding.dim] if padding else 0] * count
        inputs = RandomInputs(signature, seed).make(dims)
        inputs |= {t.name: _strings(t, dims, seed) for t in signature.inputs if t.dtype == "string"}
        return [
            self._item(inputs, number, lengths[number], loud=number == _LOUD_ROW)
            for number in range(count)
        ]

    def of(self, sample: Tensors) -> list[Item]:
        """Return the first rows of ``sample``, each as one request."""
        rows = next(iter(sample.values())).shape[0]
        count = min(_MANY, self._most, rows // self._least)
        return [self._item(sample, number, None, loud=False) for number in range(count)]

    def _item(self, inputs: Tensors, number: int, length: int | None, *, loud: bool) -> Item:
        rows = slice(number * self._least, (number + 1) * self._least)
        own: dict[str, npt.NDArray[Any]] = {}
        for name, padded, _ in self._layout.inputs:
            array = inputs[name][rows]
            if length is not None and padded:
                array = array[cut(padded, length)]
            if loud and DTYPES[self._dtypes[name]].is_float:
                array = (array * _LOUD).astype(array.dtype)
            own[name] = np.ascontiguousarray(array)
        return self._maker.make(own)


class _Trial:
    """Runs requests alone and together, and remembers whether anything was learnt."""

    def __init__(self, engine: TensorEngine, signature: Signature) -> None:
        self._engine = engine
        self._signature = signature
        named = str(engine.describe().get("precision"))
        self._least = _TOLERANCE.get(named, 0.0)
        self._refused: str | None = None
        self._ran = False
        self._varied = False

    def run(self, probe: _Probe) -> None:
        """Raise where rows together give something else."""
        items = probe.items
        if len(items) < 2:
            return
        try:
            alone = [self._engine.infer(merge(self._signature, [item]), None) for item in items]
        except ModelopsError as error:
            # Random values need not make sense to a model; only what it takes alone can tell.
            self._refused = error.message
            return
        try:
            outputs = self._engine.infer(merge(self._signature, items), None)
        except ModelopsError as error:
            raise _ApartError(
                f"{len(items)} requests that run alone fail together: {error}"
            ) from error
        rows = sum(item.rows for item in items)
        for spec in self._signature.outputs:
            shape = outputs[spec.name].shape
            if not shape or shape[0] != rows:
                raise _ApartError(f"{rows} rows give {spec.name!r} of shape {list(shape)}")
        together = split(self._signature, items, outputs)
        loud = None if probe.sample else _LOUD_ROW
        for spec in self._signature.outputs:
            own, shared = ([each[spec.name] for each in side] for side in (alone, together))
            self._compare(spec, own, shared, loud)
        self._ran = True

    def conclude(self) -> None:
        """Raise where nothing was shown."""
        if not self._ran:
            raise _ApartError(f"no probe could be run: {self._refused}")
        if not self._varied:
            raise _ApartError("every probe gave the same answer, which shows nothing")

    def _compare(
        self,
        spec: TensorSpec,
        alone: list[npt.NDArray[Any]],
        together: list[npt.NDArray[Any]],
        loud: int | None,
    ) -> None:
        for number, (a, b) in enumerate(zip(alone, together, strict=True)):
            if a.shape != b.shape:
                raise _ApartError(
                    f"{spec.name!r} of row {number} has shape {list(b.shape)} in a call of "
                    f"{len(alone)}, and {list(a.shape)} alone"
                )
        if not DTYPES[spec.dtype].is_float:
            self._varied |= any(not np.array_equal(a, alone[0]) for a in alone)
            wrong = [int(np.count_nonzero(a != b)) for a, b in zip(alone, together, strict=True)]
            if any(wrong):
                row = int(np.argmax(wrong))
                raise _ApartError(
                    f"{wrong[row]} of {alone[row].size} values of {spec.name!r} differ in row "
                    f"{row} between a call of its own and one of {len(alone)}"
                )
            return
        allowed = max(self._least, _TOLERANCE[spec.dtype])
        exact = [a.astype(np.float64) for a in alone]
        scales = [_rms(a) for a in exact]
        # An answer near zero by cancellation is rounded as its kind are; one loud row is not kin.
        ordinary = float(np.median(scales))
        for number, (a, b) in enumerate(zip(exact, together, strict=True)):
            self._varied |= a.shape != exact[0].shape or not np.array_equal(
                a, exact[0], equal_nan=True
            )
            gap = _gap(a, b.astype(np.float64), overflows=number == loud)
            gap /= max(scales[number], ordinary) or 1.0
            if gap > allowed:
                raise _ApartError(
                    f"{spec.name!r} of row {number} differs by {gap:.2g} of its RMS between a call "
                    f"of its own and one of {len(alone)}"
                )


def _rms(array: npt.NDArray[np.float64]) -> float:
    finite = array[np.isfinite(array)]
    return float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0


def _gap(a: npt.NDArray[np.float64], b: npt.NDArray[np.float64], *, overflows: bool) -> float:
    """The largest difference; infinite where one is finite and the other is not.

    Except where it ``overflows``: so near the end of float16, rounding decides which of them is.
    """
    finite = np.isfinite(a)
    if overflows:
        finite &= np.isfinite(b)
    elif not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return float("inf")
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


def _strings(spec: TensorSpec, dims: dict[str, int], seed: int) -> npt.NDArray[Any]:
    shape = spec.sized(dims)
    values = np.empty(int(np.prod(shape)), dtype=object)
    values[:] = [f"row {seed}.{number}".encode() for number in range(values.size)]
    return values.reshape(shape)
