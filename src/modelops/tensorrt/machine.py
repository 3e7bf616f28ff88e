"""What this machine has for TensorRT: the bindings, CUDA's, and a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from modelops.errors import MissingEnvironmentError

BINDINGS = "tensorrt"
INSTALL = "pip install tensorrt cuda-python (on a machine with an NVIDIA GPU and its driver)"

_DRIVER = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True)
class Gpu:
    """The GPU that CUDA calls first; ``memory`` in bytes."""

    name: str
    compute_capability: str
    memory: int


def bindings_or_none(name: str = BINDINGS) -> Any:
    """Return the bindings; None where they are not installed or do not load."""
    try:
        return import_module(name)
    except (ImportError, OSError, RuntimeError):
        return None


def require_bindings() -> Any:
    """Return the bindings of TensorRT.

    Raises:
        MissingEnvironmentError: they are not installed, or do not load; what they said is shown.
    """
    try:
        return import_module(BINDINGS)
    except (ImportError, OSError, RuntimeError) as error:
        raise MissingEnvironmentError(
            f"TensorRT does not load: {_one_line(error)}", hint=INSTALL
        ) from error


def require_gpu() -> Gpu:
    """Return the GPU to build for and run on.

    Raises:
        MissingEnvironmentError: there is none, or CUDA's bindings are not installed.
    """
    cuda = cuda_runtime()
    error, count = cuda.cudaGetDeviceCount()
    if error != cuda.cudaError_t.cudaSuccess or not count:
        said = "" if error == cuda.cudaError_t.cudaSuccess else f": {_said(cuda, error)}"
        raise MissingEnvironmentError(
            f"no NVIDIA GPU answers here{said}",
            hint="run it on a machine with one; modelops doctor says what is here",
        )
    error, found = cuda.cudaGetDeviceProperties(0)
    if error != cuda.cudaError_t.cudaSuccess:
        raise MissingEnvironmentError(f"the GPU does not answer: {_said(cuda, error)}")
    name = found.name.decode(errors="replace") if isinstance(found.name, bytes) else found.name
    return Gpu(name.strip("\0 "), f"{found.major}.{found.minor}", found.totalGlobalMem)


def cuda_runtime() -> Any:
    """Return CUDA's own bindings.

    Not torch's: a machine that only serves has no torch, and these are 20 MB.

    Raises:
        MissingEnvironmentError: they are not installed.
    """
    try:
        return import_module("cuda.bindings.runtime")
    except (ImportError, OSError) as error:
        raise MissingEnvironmentError(
            f"CUDA's Python bindings do not load: {_one_line(error)}", hint=INSTALL
        ) from error


def find_gpu() -> Gpu | None:
    """Return the GPU; None where there is none that can be used."""
    try:
        return require_gpu()
    except MissingEnvironmentError:
        return None


def what_is_missing() -> list[str]:
    """Return everything that this machine lacks to build or run a plan, for a person."""
    missing = [] if _DRIVER.exists() else ["no driver of an NVIDIA GPU is loaded here"]
    for need in (require_bindings, require_gpu):
        try:
            need()
        except MissingEnvironmentError as error:
            missing.append(error.message)
    return missing


def _said(cuda: Any, error: Any) -> str:
    text = cuda.cudaGetErrorString(error)[1]
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
