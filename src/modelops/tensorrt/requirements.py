"""What a plan needs of a machine, kept in its manifest, and whether a machine is so."""

from __future__ import annotations

from collections.abc import Mapping

from modelops.errors import VerificationError
from modelops.tensorrt.machine import Gpu

VERSION, CAPABILITY, GPU = "tensorrt", "compute_capability", "gpu"

_OR_NEWER = "+"
_AMPERE = "8.0"
REBUILD = "build the plan anew on this machine: modelops export SOURCE --to tensorrt"


def requirements(
    version: str, gpu: Gpu, *, version_compatible: bool, hardware_compatible: bool
) -> dict[str, str]:
    """Return a manifest's ``requires`` of a plan built with ``version`` on ``gpu``.

    ``+`` means: or newer (of TensorRT, within its major version).
    """
    needs = {VERSION: version + _OR_NEWER * version_compatible}
    if hardware_compatible:
        return needs | {CAPABILITY: _AMPERE + _OR_NEWER}
    return needs | {CAPABILITY: gpu.compute_capability, GPU: gpu.name}


def check_machine(requires: Mapping[str, str], version: str, gpu: Gpu) -> None:
    """Refuse a plan that was built for another TensorRT or GPU than this machine's.

    Raises:
        VerificationError: it was; both are named, and how to build it anew.
    """
    for key, here, what in (
        (VERSION, version, "TensorRT"),
        (CAPABILITY, gpu.compute_capability, "compute capability"),
        (GPU, gpu.name, "GPU"),
    ):
        if key in requires and not _fits(key, requires[key], here):
            raise VerificationError(
                f"the plan was built for {what} {_spelled(requires[key])}; this machine has "
                f"{what} {here}",
                hint=REBUILD,
            )


def _fits(key: str, need: str, here: str) -> bool:
    if not need.endswith(_OR_NEWER):
        return need == here
    wanted, found = _numbers(need.removesuffix(_OR_NEWER)), _numbers(here)
    return found >= wanted and (key != VERSION or found[0] == wanted[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())


def _spelled(need: str) -> str:
    return need.removesuffix(_OR_NEWER) + " or newer" * need.endswith(_OR_NEWER)
