"""Engine environments: install, list, remove."""

from __future__ import annotations

from pathlib import Path

from modelops.doctor.machine import gpus
from modelops.environments import (
    EngineStatus,
    Installed,
    Removed,
    engine_statuses,
    install_engine,
    remove_engine,
)
from modelops.progress import Progress, silent
from modelops.signature import Frozen


class InstallResult(Frozen):
    """What is there now. ``already``: nothing had to be done. Sizes in bytes."""

    engine: str
    version: str
    build: str
    platform: str
    why: str
    python: str
    python_version: str
    folder: str
    size_bytes: int | None
    already: bool
    seconds: float
    notes: tuple[str, ...]
    versions: dict[str, str]


def install(
    name: str,
    *,
    folder: Path | None = None,
    build: str | None = None,
    python: Path | None = None,
    reinstall: bool = False,
    progress: Progress = silent,
) -> InstallResult:
    """Make the environment of engine ``name`` with the right build for this machine.

    Raises as ``modelops.environments.install_engine`` does.
    """
    done: Installed = install_engine(
        name,
        folder=folder,
        gpus=gpus(),
        build=build,
        python=python,
        reinstall=reinstall,
        progress=progress,
    )
    record = done.record
    return InstallResult(
        engine=record.engine,
        version=record.version,
        build=record.build,
        platform=record.platform,
        why=record.why,
        python=record.python,
        python_version=record.python_version,
        folder=record.folder,
        size_bytes=record.size_bytes,
        already=done.already,
        seconds=round(done.seconds, 1),
        notes=record.notes,
        versions=record.versions,
    )


def engines(folder: Path | None = None) -> list[EngineStatus]:
    """Return how every engine's environment is, installed or not."""
    return engine_statuses(folder)


def remove(name: str, *, folder: Path | None = None, progress: Progress = silent) -> Removed:
    """Remove the environment of engine ``name``; raises as ``remove_engine`` does."""
    return remove_engine(name, folder=folder, progress=progress)
