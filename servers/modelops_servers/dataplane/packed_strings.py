"""A tensor of byte strings that nobody has taken apart yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops_servers.dataplane import strings


class PackedStrings(npt.NDArray[Any]):
    """Has the shape and dtype of its tensor, and ``packed``, its elements as on the wire.

    Millions of small strings as objects hold up a whole process, to make as much as to free. The
    elements cannot be read from this: ``opened`` gives an array whose can.
    """

    packed: memoryview

    @classmethod
    def of(cls, packed: memoryview, shape: Sequence[int]) -> PackedStrings:
        """Return the tensor of ``shape`` whose elements, row-major, ``packed`` holds."""
        array = np.broadcast_to(np.array(None, dtype=object), tuple(shape)).view(cls)
        array.packed = packed
        return array


def opened(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return ``array``, or where it is packed an array of its strings."""
    if not isinstance(array, PackedStrings):
        return array
    return strings.unpack(array.packed, array.size).reshape(array.shape)


def packed(array: npt.NDArray[Any]) -> bytes | memoryview:
    """Return an array's strings, row-major, as on the wire."""
    return array.packed if isinstance(array, PackedStrings) else strings.pack(array)
