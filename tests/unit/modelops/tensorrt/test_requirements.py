"""A7: a plan of another TensorRT or GPU is refused, with both and how to build it anew."""

from __future__ import annotations

import pytest

from modelops.errors import VerificationError
from modelops.tensorrt import Gpu, check_machine, requirements

L4 = Gpu("NVIDIA L4", "8.9", 2**34)
H100 = Gpu("NVIDIA H100 PCIe", "9.0", 2**36)


def needs(*, version: bool = False, hardware: bool = False) -> dict[str, str]:
    return requirements("10.16.1.11", L4, version_compatible=version, hardware_compatible=hardware)


def test_the_machine_that_built_it_takes_it() -> None:
    check_machine(needs(), "10.16.1.11", L4)


@pytest.mark.parametrize(
    ("version", "gpu", "why"),
    [
        ("11.4.0.106", L4, r"TensorRT 10\.16\.1\.11; this machine has TensorRT 11\.4\.0\.106"),
        ("10.16.1.11", H100, r"compute capability 8\.9; this machine has compute capability 9\.0"),
        ("10.16.1.11", Gpu("NVIDIA L40", "8.9", 1), "GPU NVIDIA L4; this machine has GPU NVIDIA"),
    ],
)
def test_another_machine_does_not(version: str, gpu: Gpu, why: str) -> None:
    with pytest.raises(VerificationError, match=why) as caught:
        check_machine(needs(), version, gpu)
    assert "modelops export SOURCE --to tensorrt" in (caught.value.hint or "")


def test_what_was_built_to_be_compatible_is() -> None:
    check_machine(needs(version=True), "10.99.0", L4)
    check_machine(needs(hardware=True), "10.16.1.11", H100)
    with pytest.raises(VerificationError, match=r"or newer; this machine has TensorRT 10\.3\.0"):
        check_machine(needs(version=True), "10.3.0", L4)
    with pytest.raises(VerificationError, match="or newer"):
        check_machine(needs(version=True), "11.0.0", L4)
    with pytest.raises(VerificationError, match="or newer"):
        check_machine(needs(hardware=True), "10.16.1.11", Gpu("NVIDIA T4", "7.5", 1))
