"""Memory that two processes map: one side allocates and frees in it, the other side looks."""

from __future__ import annotations

import bisect
import mmap
import os

import numpy as np
import numpy.typing as npt

ARENA_BYTES = 2**32
"""Virtual size of an arena; pages exist only where something was written."""

_PAGE = 4096
# What stays resident when nothing is in flight: fresh pages cost more than copying into them.
_KEPT_BYTES = 64 * 2**20


class Arena:
    """One memory file of ``size`` bytes, mapped; ``fd`` can be sent to the other process."""

    def __init__(self, fd: int, size: int = ARENA_BYTES) -> None:
        """Map ``fd``, which this arena owns from here on."""
        try:
            self._map = mmap.mmap(fd, size)
        except BaseException:
            os.close(fd)
            raise
        self.fd = fd
        self.size = size
        self._bytes: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self._base = int(self._bytes.ctypes.data)
        self._free: list[tuple[int, int]] = [(0, size)]  # (offset, length), rising
        self._taken: dict[int, int] = {}
        self._high = 0

    @classmethod
    def create(cls, size: int = ARENA_BYTES) -> Arena:
        """Make an empty one; it vanishes with the last process that maps it."""
        fd = os.memfd_create("modelops-arena", os.MFD_CLOEXEC)
        os.ftruncate(fd, size)
        return cls(fd, size)

    def allocate(self, count: int) -> int | None:
        """Return the offset of ``count`` bytes, page-aligned, or None where there is no room."""
        needed = max(1, -(-count // _PAGE)) * _PAGE
        # The lowest place that fits: pages used before are resident already.
        for index, (offset, length) in enumerate(self._free):
            if length >= needed:
                if length == needed:
                    del self._free[index]
                else:
                    self._free[index] = (offset + needed, length - needed)
                self._taken[offset] = needed
                self._high = max(self._high, offset + needed)
                return offset
        return None

    def free(self, offset: int) -> None:
        """Give back what ``allocate`` returned; KeyError where nothing was taken there."""
        length = self._taken.pop(offset)
        index = bisect.bisect(self._free, (offset, 0))
        if index < len(self._free) and self._free[index][0] == offset + length:
            length += self._free.pop(index)[1]
        if index > 0 and sum(self._free[index - 1]) == offset:
            index -= 1
            before = self._free.pop(index)
            offset, length = before[0], before[1] + length
        self._free.insert(index, (offset, length))
        if not self._taken and self._high > _KEPT_BYTES:
            self._map.madvise(mmap.MADV_REMOVE, _KEPT_BYTES, self._high - _KEPT_BYTES)
            self._high = _KEPT_BYTES

    @property
    def taken(self) -> int:
        """How many allocations are not given back."""
        return len(self._taken)

    def view(self, offset: int, count: int) -> npt.NDArray[np.uint8]:
        """Return ``count`` bytes at ``offset``, in place.

        Raises:
            ValueError: they reach beyond the arena.
        """
        if not 0 <= offset <= offset + count <= self.size:
            raise ValueError(f"{count} bytes at {offset} are outside the arena")
        return self._bytes[offset : offset + count]

    def offset_of(self, array: npt.NDArray[np.uint8]) -> int | None:
        """Return where ``array``'s memory begins in this arena, or None where it is elsewhere."""
        offset = int(array.ctypes.data) - self._base
        return offset if offset >= 0 and offset + array.nbytes <= self.size else None

    def close(self) -> None:
        """Close the descriptor; the mapping goes when the last view of it does."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
