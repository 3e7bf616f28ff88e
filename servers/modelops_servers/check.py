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
        self._bounds = [(t.name, *t.bounds) for t in signature.inputs if t.bounds is not None]

    def __call__(self, tensors: Tensors) -> dict[str, int]:
        """Return the size of each dim.

        Raises:
            RequestError: a name, dtype, rank, size or value is not the signature's; the input is
                named.
        """
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


def _oip(name: str) -> str:
    found = DTYPES.get("string" if name == "object" else name)
    return found.oip if found else name
