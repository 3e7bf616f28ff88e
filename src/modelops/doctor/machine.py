"""The machine: cores and memory as granted, instruction sets, GPUs, compiler, disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from modelops.doctor.findings import Finding, Machine

_FLAGS = (
    "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16",
    "amx_int8", "asimd", "sve", "bf16", "i8mm",
)  # fmt: skip
_GIB = 2**30
_LOW_DISK = 5 * _GIB
_MIN_COMPILER = 9


def look(root: Path = Path("/")) -> Machine:
    """Describe the machine; ``root`` is where /proc and /sys hang."""
    return Machine(
        os=f"{platform.system()} {platform.release()}",
        arch=platform.machine(),
        python=platform.python_version(),
        cores=cores(root),
        memory_bytes=memory(root),
        cpu_flags=cpu_flags(root),
        gpus=gpus(),
    )


def cores(root: Path = Path("/")) -> float:
    """Return the cores this process may use: its affinity, or less where a cgroup has a quota."""
    granted = float(len(os.sched_getaffinity(0)))
    for group in _cgroups(root):
        quota, period = (
            _words(group / "cpu.max")
            or (
                *_words(group / "cpu.cfs_quota_us"),
                *_words(group / "cpu.cfs_period_us"),
            )
            or ("max", "0")
        )
        if quota.isdigit() and period.isdigit() and int(period):
            granted = min(granted, int(quota) / int(period))
    return round(granted, 2)


def memory(root: Path = Path("/")) -> int:
    """Return the bytes of memory this process may use: the machine's, or its cgroup's limit."""
    found = re.search(r"MemTotal:\s+(\d+) kB", _text(root / "proc/meminfo"))
    granted = int(found[1]) * 1024 if found else 0
    for group in _cgroups(root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = _text(group / name).strip()
            if limit.isdigit():
                granted = min(granted, int(limit)) if granted else int(limit)
    return granted


def cpu_flags(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the instruction sets that matter to inference, of those that the CPU has."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    there = set(found[1].split()) if found else set()
    return tuple(f for f in _FLAGS if f in there)


def gpus() -> tuple[str, ...]:
    """Return each NVIDIA GPU as name, memory, compute capability and driver."""
    query = "name,memory.total,compute_cap,driver_version"
    out = _output(["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"])
    return tuple(line.strip() for line in (out or "").splitlines() if line.count(",") >= 3)


def machine_findings(machine: Machine) -> Iterator[Finding]:
    """Yield what is worth saying about the machine itself."""
    yield _ok("machine", "system", f"{machine.os}, {machine.arch}")
    yield _ok("machine", "python", f"{machine.python} ({sys.executable})")
    yield _ok("machine", "cores", f"{machine.cores:g} usable of {os.cpu_count()}")
    yield _ok("machine", "memory", f"{machine.memory_bytes / _GIB:.1f} GiB usable")
    yield _ok("machine", "instructions", ", ".join(machine.cpu_flags) or "none that help")
    yield from _gpu(machine)
    yield _compiler()
    for name, folder in (("temporary", Path(tempfile.gettempdir())), ("working", Path.cwd())):
        yield _disk(name, folder)


def _gpu(machine: Machine) -> Iterator[Finding]:
    for gpu in machine.gpus:
        yield _ok("accelerator", "NVIDIA GPU", gpu)
    if machine.gpus:
        cuda = re.search(r"CUDA Version:\s*([\d.]+)", _output(["nvidia-smi"]) or "")
        yield _ok("accelerator", "CUDA", f"driver supports up to {cuda[1] if cuda else '?'}")
    elif any(Path("/dev").glob("nvidia[0-9]*")) or Path("/proc/driver/nvidia").exists():
        yield Finding(
            area="accelerator",
            name="NVIDIA GPU",
            status="warning",
            value="there is a device, but nvidia-smi does not answer",
            fix="reinstall the NVIDIA driver, then reboot",
        )
    else:
        yield Finding(
            area="accelerator", name="NVIDIA GPU", status="absent", value="none: models run on CPU"
        )


def _compiler() -> Finding:
    names = [os.environ.get("CXX", ""), "g++", "c++", "clang++"]
    compiler = next((n for n in names if n and shutil.which(n.split()[0])), None)
    fix = "apt-get install g++"
    if compiler is None:
        value = "none: torch.compile and AOTInductor need one"
        return Finding(area="machine", name="compiler", status="absent", value=value, fix=fix)
    out = (_output([*compiler.split(), "-dumpfullversion", "-dumpversion"]) or "").strip()
    major = re.match(r"\d+", out)
    if major is None or int(major[0]) < _MIN_COMPILER:
        value = f"{compiler} {out or 'does not answer'}; torch.compile needs {_MIN_COMPILER}"
        return Finding(area="machine", name="compiler", status="warning", value=value, fix=fix)
    return _ok("machine", "compiler", f"{compiler} {out}")


def _disk(name: str, folder: Path) -> Finding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        value = f"{folder} cannot be read: {error.strerror}"
        return Finding(area="disk", name=name, status="warning", value=value)
    low = free < _LOW_DISK
    return Finding(
        area="disk",
        name=name,
        status="warning" if low else "ok",
        value=f"{free / _GIB:.1f} GiB free in {folder}",
        fix=("export TMPDIR=<a larger disk>" if name == "temporary" else f"df -h {folder}")
        if low
        else None,
    )


def _cgroups(root: Path) -> Iterator[Path]:
    """Yield this process's cgroup folders and all above them, of version 2 and of version 1."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        tree = root / "sys/fs/cgroup"
        if controllers:
            tree /= controllers
        parts = [p for p in path.split("/") if p not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield tree.joinpath(*parts[:depth])


def _words(path: Path) -> tuple[str, ...]:
    return tuple(_text(path).split())


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""  # not on this machine, or not in this container


def _output(argv: list[str]) -> str | None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _ok(area: str, name: str, value: str) -> Finding:
    return Finding(area=area, name=name, status="ok", value=value)
