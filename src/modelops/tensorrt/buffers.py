"""Memory of the GPU and page-locked memory of the host, grown as needed and kept."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.errors import EngineError

# What is asked for is rounded up, so that lengths that vary do not ask again and again.
_STEP = 2**16


class Cuda:
    """A stream, and CUDA's calls with their errors raised."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.stream: int = int(self._call(runtime.cudaStreamCreate()))

    def allocate(self, nbytes: int) -> int:
        """Return the address of ``nbytes`` on the GPU."""
        return int(self._call(self._runtime.cudaMalloc(nbytes)))

    def allocate_pinned(self, nbytes: int) -> int:
        """Return the address of ``nbytes`` on the host that the GPU copies from directly."""
        return int(self._call(self._runtime.cudaMallocHost(nbytes)))

    def free(self, device: int, pinned: int) -> None:
        """Give back a pair of buffers."""
        self._call(self._runtime.cudaFree(device))
        self._call(self._runtime.cudaFreeHost(pinned))

    def upload(self, device: int, pinned: int, nbytes: int) -> None:
        """Copy to the GPU, in the stream's order."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call(self._runtime.cudaMemcpyAsync(device, pinned, nbytes, kind, self.stream))

    def download(self, pinned: int, device: int, nbytes: int) -> None:
        """Copy from the GPU, in the stream's order."""
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call(self._runtime.cudaMemcpyAsync(pinned, device, nbytes, kind, self.stream))

    def wait(self) -> None:
        """Wait for all that is in the stream."""
        self._call(self._runtime.cudaStreamSynchronize(self.stream))

    def close(self) -> None:
        """Give the stream back."""
        self._call(self._runtime.cudaStreamDestroy(self.stream))

    def _call(self, result: Any) -> Any:
        error, *values = result
        if error != self._runtime.cudaError_t.cudaSuccess:
            text = self._runtime.cudaGetErrorString(error)[1]
            said = text.decode(errors="replace") if isinstance(text, bytes) else text
            raise EngineError(f"CUDA failed: {said}")
        return values[0] if values else None


class Buffer:
    """One tensor's place on the GPU, and its page-locked twin on the host."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._size = 0
        self.device = self.pinned = 0

    def reserve(self, nbytes: int) -> None:
        """Make room; what was in it before is lost where it grows."""
        if nbytes <= self._size:
            return
        self.release()
        size = -(-nbytes // _STEP) * _STEP
        self.device = self._cuda.allocate(size)
        self.pinned = self._cuda.allocate_pinned(size)
        self._size = size

    def view(self, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return the host's side as an array, without a copy."""
        kind: np.dtype[Any] = np.dtype(dtype)
        count = int(np.prod(shape, dtype=np.int64))
        raw = (ctypes.c_ubyte * (count * kind.itemsize)).from_address(self.pinned)
        return np.frombuffer(memoryview(raw), dtype=kind, count=count).reshape(shape)

    def release(self) -> None:
        """Give both back."""
        if self._size:
            self._cuda.free(self.device, self.pinned)
            self._size = self.device = self.pinned = 0
