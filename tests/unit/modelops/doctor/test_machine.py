"""The machine as it is granted: what a container limits, the doctor says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from modelops.doctor import machine
from modelops.doctor.findings import Finding, Machine

_V2 = "0::/pod/box\n"
_V1 = "5:memory:/box\n4:cpu,cpuacct:/box\n1:name=systemd:/\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    write(tmp_path / "proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_without_limits_it_is_the_machines(root: Path) -> None:
    write(root / "proc/self/cgroup", _V2)
    write(root / "sys/fs/cgroup/pod/box/cpu.max", "max 100000\n")
    write(root / "sys/fs/cgroup/pod/box/memory.max", "max\n")
    assert machine.cores(root) == 8
    assert machine.memory(root) == 16 * 2**30


def test_the_tightest_limit_above_counts(root: Path) -> None:
    write(root / "proc/self/cgroup", _V2)
    write(root / "sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n")
    write(root / "sys/fs/cgroup/pod/cpu.max", "150000 100000\n")
    write(root / "sys/fs/cgroup/pod/memory.max", str(2**30))
    write(root / "sys/fs/cgroup/memory.max", str(2**31))
    assert machine.cores(root) == 1.5
    assert machine.memory(root) == 2**30


def test_version_1_limits(root: Path) -> None:
    write(root / "proc/self/cgroup", _V1)
    write(root / "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n")
    write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n")
    write(root / "sys/fs/cgroup/memory/box/memory.limit_in_bytes", str(3 * 2**30))
    write(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", str(2**63 - 4096))
    assert machine.cores(root) == 2.5
    assert machine.memory(root) == 3 * 2**30


def test_cpu_flags(root: Path) -> None:
    write(root / "proc/cpuinfo", "model name: x\nflags\t\t: fpu avx2 amx_tile avx512f sse\n")
    assert machine.cpu_flags(root) == ("avx2", "avx512f", "amx_tile")
    write(root / "proc/cpuinfo", "Features\t: fp asimd bf16\n")
    assert machine.cpu_flags(root) == ("asimd", "bf16")


def test_a_machine_without_proc_is_described(tmp_path: Path) -> None:
    assert machine.cpu_flags(tmp_path) == ()
    assert machine.memory(tmp_path) == 0
    assert machine.cores(tmp_path) == len(os.sched_getaffinity(0))


def program(folder: Path, name: str, text: str) -> None:
    write(folder / name, f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def findings(name: str) -> list[Finding]:
    return [f for f in machine.machine_findings(machine.look()) if f.name == name]


def test_gpus_are_those_the_driver_answers_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    program(
        tmp_path,
        "nvidia-smi",
        'case "$1" in --query*) echo "NVIDIA H100, 81559 MiB, 9.0, 580.1";;'
        ' *) echo "| Driver Version: 580.1  CUDA Version: 13.0 |";; esac',
    )
    assert machine.gpus() == ("NVIDIA H100, 81559 MiB, 9.0, 580.1",)
    (cuda,) = findings("CUDA")
    assert "13.0" in cuda.value
    program(tmp_path, "nvidia-smi", "echo 'could not communicate with the driver'; exit 9")
    assert machine.gpus() == ()


@pytest.mark.parametrize(
    ("version", "status"), [("12.2.0", "ok"), ("9", "ok"), ("8.5.0", "warning"), ("", "warning")]
)
def test_the_compiler_is_new_enough_for_torch_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, status: str
) -> None:
    program(tmp_path, "my-c++", f"echo {version}")
    monkeypatch.setenv("CXX", str(tmp_path / "my-c++"))
    (compiler,) = findings("compiler")
    assert compiler.status == status
    assert (compiler.fix is None) == (status == "ok")


def test_no_compiler_is_said_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    (compiler,) = findings("compiler")
    assert (compiler.status, compiler.fix) == ("absent", "apt-get install g++")


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2**30))
    for name in ("temporary", "working"):
        (disk,) = findings(name)
        assert disk.status == "warning"
        assert disk.fix


def test_a_model_of_the_machine_can_be_made() -> None:
    looked = machine.look()
    assert looked == Machine.model_validate(looked.model_dump())
    assert looked.cores > 0
    assert looked.memory_bytes > 2**28
