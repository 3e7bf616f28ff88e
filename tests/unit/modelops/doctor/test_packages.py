"""Each extra, and what is known to break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from modelops.doctor import packages, probe
from modelops.doctor.findings import Finding, Machine
from modelops.doctor.probe import Probe

_CPU = Machine(os="Linux", arch="x86_64", python="3.11", cores=2, memory_bytes=1, cpu_flags=())
_GPU = _CPU.model_copy(update={"gpus": ("NVIDIA H100, 81559 MiB, 9.0, 580.1",)})
_ALL = {n: v for extra in packages.requirements().values() for n, v in extra.items()}
_THERE = {n.replace("_", "-"): v for n, v in _ALL.items()} | {"torch": "2.13.0+cpu"}


def diagnose(
    monkeypatch: pytest.MonkeyPatch,
    there: dict[str, str],
    machine: Machine = _CPU,
    **told: Probe,
) -> dict[str, Finding]:
    def run(task: str, *modules: str) -> Probe:
        usual = {"torch": {"cuda": None, "gpu": False}} if task == "imports" else {}
        answer = told.get(task, Probe(facts=usual))
        errors = {m: e for m, e in answer.errors.items() if m in modules or task == "providers"}
        return Probe(answer.facts, errors)

    monkeypatch.setattr(probe, "run", run)
    monkeypatch.setattr(packages, "installed", lambda: there)
    return {f.name: f for f in found(machine)}


def found(machine: Machine) -> Iterator[Finding]:
    return packages.package_findings(machine)


def test_the_extras_are_those_of_the_distribution() -> None:
    needed = packages.requirements()
    assert set(needed) == {"export", "serve", "loadtest"}
    assert {"torch", "onnx"} <= needed["export"].keys()
    assert "fastapi" in needed["serve"]
    assert "locust" in needed["loadtest"]


def test_all_well(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = diagnose(monkeypatch, _THERE, providers=Probe({"CPUExecutionProvider": True}))
    assert {f.status for f in seen.values()} == {"ok"}


def test_an_extra_that_is_not_there_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {n: v for n, v in _THERE.items() if n != "locust"}
    loadtest = diagnose(monkeypatch, there)["loadtest"]
    assert loadtest.status == "absent"
    assert loadtest.value == "not installed: locust missing"
    assert loadtest.fix == 'pip install "modelops[loadtest]"'


def test_an_extra_that_does_not_import_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Probe(errors={"uvloop": "crashed (SIGSEGV)"})
    seen = diagnose(monkeypatch, _THERE, imports=broken)
    assert seen["serve"].status == "broken"
    assert "uvloop: crashed (SIGSEGV)" in seen["serve"].value
    assert seen["loadtest"].status == "ok"


def test_an_extra_that_is_too_old_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = diagnose(monkeypatch, _THERE | {"locust": "2.9.1"})
    assert seen["loadtest"].status == "broken"
    assert "locust 2.9.1 < 2.40" in seen["loadtest"].value


@pytest.mark.parametrize(
    ("older", "newer"), [("2.9", "2.40"), ("2.13.0rc1", "2.13.1"), ("1", "1.0.1")]
)
def test_versions_are_compared_as_numbers(older: str, newer: str) -> None:
    assert packages._numbers(older) < packages._numbers(newer)
    assert packages._numbers("2.13.0+cpu") == packages._numbers("2.13")


def test_a_cpu_torch_beside_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = diagnose(monkeypatch, _THERE, _GPU)["torch"]
    assert torch.status == "warning"
    assert "there is a GPU" in torch.value


def test_torchvision_that_does_not_fit_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Probe({"torch": {"cuda": None, "gpu": False}}, {"torchvision": "no operator nms"})
    seen = diagnose(monkeypatch, _THERE | {"torchvision": "0.28"}, imports=told)
    assert seen["torchvision"].status == "broken"
    assert seen["torchvision"].fix == "pip uninstall -y torchvision"


def test_two_onnxruntimes_break_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    there = _THERE | {"onnxruntime-gpu": "1.31.1"}
    runtime = diagnose(monkeypatch, there)["onnxruntime"]
    assert runtime.status == "broken"
    assert runtime.fix is not None
    assert "uninstall -y" in runtime.fix
    assert runtime.fix.endswith("&& pip install onnxruntime")
    on_gpu = diagnose(monkeypatch, there, _GPU)["onnxruntime"].fix
    assert on_gpu is not None
    assert on_gpu.endswith("pip install onnxruntime-gpu")


def test_a_provider_that_is_listed_and_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Probe({"CUDAExecutionProvider": False, "CPUExecutionProvider": True})
    seen = diagnose(monkeypatch, _THERE, _GPU, providers=told)
    assert seen["CPUExecutionProvider"].status == "ok"
    assert seen["CUDAExecutionProvider"].status == "warning"
    assert "runs on the CPU" in seen["CUDAExecutionProvider"].value
    assert seen["CUDAExecutionProvider"].fix


def test_an_onnxruntime_that_crashes_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Probe(errors={"onnxruntime": "crashed (SIGILL)"})
    assert diagnose(monkeypatch, _THERE, providers=told)["onnxruntime"].status == "broken"
