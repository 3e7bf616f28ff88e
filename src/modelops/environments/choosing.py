"""Which build fits this machine, and which Python makes its environment."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from modelops.environments.catalogue import Build, Engine
from modelops.environments.children import our_pip
from modelops.environments.lockfile import LockFacts, read_lock
from modelops.errors import MissingEnvironmentError

_ABLE = "import sys, venv; {} print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Choice:
    """A build to try, and why it is the one."""

    build: Build
    why: str


def choose_builds(engine: Engine, gpus: tuple[str, ...], asked: str | None) -> list[Choice]:
    """Return the builds to try in order, each with the reason that a person is told.

    Raises:
        UsageError: the build asked for does not exist.
        MissingEnvironmentError: this version of modelops has no locks of it.
    """
    if asked is not None:
        build = engine.build(asked)
        if not build.locked:
            raise MissingEnvironmentError(
                f"{engine.name}'s build {build.name!r} is not locked in this version of modelops: "
                "its index did not answer when the locks were made, and nothing is installed "
                "without a hash",
                hint=f"modelops engine install {engine.name}, or make locks where it answers",
            )
        return [Choice(build, f"{build.about}: asked for with --build")]
    machine = f"this machine has {gpus[0].split(',')[0]}" if gpus else "this machine has no GPU"
    found: list[Choice] = []
    passed: list[str] = []
    for build in engine.builds:
        if build.gpu != bool(gpus):
            continue
        if build.locked:
            found.append(Choice(build, "; ".join([f"{build.about}: {machine}", *passed])))
        else:
            passed.append(f"{build.about} is not locked in this version of modelops")
    return found


def check_machine(engine: str, build: Build) -> LockFacts:
    """Return what the locks of ``build`` are for.

    Raises:
        MissingEnvironmentError: it is another kind of machine than this.
    """
    facts = [read_lock(lock.path) for lock in build.locks]
    hint = (
        f"make an environment with {engine} in it yourself, then: "
        f"modelops engine install {engine} --python PATH"
    )
    system, machine = platform.system().lower(), platform.machine()
    for fact in facts:
        if (system, machine) != (fact.system, fact.machine):
            raise MissingEnvironmentError(
                f"{build.about} is locked for {fact.system} {fact.machine}, and this is "
                f"{system} {machine}",
                hint=hint,
            )
    glibc = max(fact.glibc for fact in facts)
    name, version = platform.libc_ver()
    there = tuple(int(n) for n in version.split(".")[:2] if n.isdigit())
    if name != "glibc" or there < glibc:
        raise MissingEnvironmentError(
            f"{build.about} needs glibc {glibc[0]}.{glibc[1]} or newer, and this machine has "
            f"{name or 'another C library'} {version}".rstrip(),
            hint=hint,
        )
    pythons = set.intersection(*(set(fact.pythons) for fact in facts))
    ordered = tuple(p for p in facts[0].pythons if p in pythons)
    return LockFacts(
        system=system,
        machine=machine,
        pythons=ordered,
        glibc=glibc,
        download=sum(fact.download for fact in facts),
        packages=sum(fact.packages for fact in facts),
    )


def choose_python(build: Build, pythons: tuple[str, ...]) -> Path:
    """Return an interpreter that the locks are for: the one that runs this, else one on the path.

    Raises:
        MissingEnvironmentError: there is none, or it cannot make environments.
    """
    running = Path(getattr(sys, "_base_executable", None) or sys.executable)
    candidates = [running, *(Path(p) for v in pythons if (p := shutil.which(f"python{v}")))]
    unable = []
    for candidate in candidates:
        version = _version(candidate)
        if version in pythons:
            return candidate
        if version is None and candidate.exists():
            unable.append(str(candidate))
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if ours in pythons and unable:
        raise MissingEnvironmentError(
            f"{unable[0]} cannot make environments: its venv or ensurepip is missing",
            hint=f"apt-get install python{ours}-venv",
        )
    raise MissingEnvironmentError(
        f"{build.about} is locked for Python {', '.join(pythons)}; this is {ours}, and none of "
        "them is on the path",
        hint=f"install Python {pythons[0]} with its venv module, then run again",
    )


def check_disk(build: Build, folder: Path) -> None:
    """Raise MissingEnvironmentError where the disk of ``folder`` has no room for ``build``."""
    free = shutil.disk_usage(folder).free
    if free < build.disk_bytes:
        raise MissingEnvironmentError(
            f"{build.about} needs up to {build.disk_bytes / 1e9:.0f} GB while it is installed, "
            f"and {folder} has {free / 1e9:.1f} GB free",
            hint="free some space, or choose another disk: --engines-dir DIR",
        )


def _version(python: Path) -> str | None:
    """Return the version of an interpreter that can make environments, else None."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ABLE.format("" if our_pip() else "import ensurepip;")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
