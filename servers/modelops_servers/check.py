"""Whether tensors fit a signature, looked at before any runtime sees them."""

from __future__ import annotations

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import RequestError
from modelops.protocols import Tensors
from modelops.signature import Signature


class InputCheck:
    """A signature's demands, prepared once so that a request costs microseconds."""

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._dtypes = {t.name: numpy_dtype(t.dtype) for t in signature.inputs}
        self._shapes = [(t.name, t.shape, len(t.shape)) for t in signature.inputs]
        self._ranges = {name: (d.min, d.max) for name, d in signature.dims.items()}
        self._bounds = [(t.name, *t.bounds) for t in signature.inputs if t.bounds is not None]

    def __call__(self, tensors: Tensors) -> dict[str, int]:
        """Return the size of each dim.

        Raises:
            RequestError: a name, dtype, rank, size or value is not the signature's; the input is
                named.
        """
        sizes = self._sizes(tensors)
        if sizes is None:  # the slow way says what is wrong
            sizes = self._signature.bind({name: array.shape for name, array in tensors.items()})
        for name, expected in self._dtypes.items():
            if tensors[name].dtype != expected:
                raise RequestError(
                    f"input {name!r} is {_oip(tensors[name].dtype.name)}, "
                    f"expected {_oip(self._signature.input(name).dtype)}"
                )
        for name, low, high in self._bounds:
            array = tensors[name]
            if array.size and not (low <= array.min() and array.max() <= high):
                raise RequestError(
                    f"input {name!r} holds values from {array.min()} to {array.max()}, "
                    f"outside {low}..{high}"
                )
        return sizes

    def _sizes(self, tensors: Tensors) -> dict[str, int] | None:
        """Return the size of each dim, or None where the shapes are not the signature's."""
        if len(tensors) != len(self._shapes):
            return None
        sizes: dict[str, int] = {}
        for name, wanted, rank in self._shapes:
            array = tensors.get(name)
            if array is None or array.ndim != rank:
                return None
            for want, got in zip(wanted, array.shape, strict=True):
                if want.__class__ is int:
                    if want != got:
                        return None
                elif sizes.setdefault(want, got) != got:  # type: ignore[arg-type]
                    return None
        for name, size in sizes.items():
            low, high = self._ranges[name]
            if not low <= size <= high:
                return None
        return sizes


def _oip(name: str) -> str:
    found = DTYPES.get("string" if name == "object" else name)
    return found.oip if found else name
