"""Opening: the one way by which an artifact's files reach a runtime."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from pathlib import Path

from modelops.artifact import trust_store
from modelops.artifact.integrity import check_files, read_manifest
from modelops.artifact.manifest import MANIFEST, Manifest
from modelops.artifact.onnx_data import check_onnx
from modelops.artifact.store import Artifact, version_of, versions
from modelops.artifact.text_folder import TEXT_FORMAT, check_text, is_text
from modelops.errors import InputError, IntegrityError, ParityError, UnsafeInputError
from modelops.progress import Progress, silent

# A format that is not in this table is taken for code.
_RUNS_CODE = {
    "onnx": False,
    TEXT_FORMAT: False,
    "torch-export": True,
    "aoti": True,
    "tensorrt": True,
}


def runs_code(manifest: Manifest) -> bool:
    """Whether loading this artifact runs code from it; a manifest cannot claim less."""
    return manifest.executable or _RUNS_CODE.get(manifest.format, True)


def open_artifact(
    path: str | Path,
    *,
    pin: str | None = None,
    require_trust: bool = True,
    progress: Progress = silent,
) -> Artifact:
    """Check an artifact wholly and return it; no file of it is run or loaded.

    ``root`` is its newest version, ``root/3`` that one. ``pin`` is the digest that it must have,
    which also stands for trust; with ``require_trust`` false code is let through, for callers
    that only look.

    Raises:
        InputError: there is no artifact.
        IntegrityError: its files or manifest are not those published, or not the pinned ones.
        ParityError: it never passed parity (kept by ``--keep-failed``).
        UnsafeInputError: it runs code, and its digest is neither trusted nor pinned.
    """
    folder = locate(Path(path))
    progress(f"opening {folder}")
    manifest = read_manifest(folder)
    if pin is not None and pin.removeprefix("sha256:") != manifest.digest.removeprefix("sha256:"):
        raise IntegrityError(f"{folder} has digest {manifest.digest}, not the pinned {pin}")
    check_files(folder, manifest, progress)
    if manifest.format == "onnx":
        check_onnx(folder, manifest)
    if is_text(manifest):
        check_text(folder, manifest)
    if not manifest.parity.passed:
        raise ParityError(
            f"{folder} did not pass parity when it was exported; it is kept for study only"
        )
    if (
        require_trust
        and runs_code(manifest)
        and pin is None
        and not trust_store.is_trusted(manifest.digest)
    ):
        raise UnsafeInputError(
            f"{folder} is {manifest.format}, which runs code from the artifact, and its digest "
            f"{manifest.digest} is not trusted here",
            hint=f"if you know where it comes from: modelops trust {folder}",
        )
    return Artifact(path=folder, version=version_of(folder.name) or 1, manifest=manifest)


def locate(path: Path) -> Path:
    """Return the version folder that ``path`` means: itself, or its newest version.

    Raises:
        InputError: there is no artifact at ``path``.
        IntegrityError: the version is a link.
    """
    try:
        there = path.exists() or path.is_symlink()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    if not there:
        raise InputError(f"there is nothing at {path}", hint=_near(path))
    if not path.is_dir():
        raise InputError(f"{path} is not an artifact: it is not a folder")
    version = version_of(path.absolute().name)
    if version is not None and path.is_symlink():
        raise IntegrityError(f"{path} is a link, not a published version")
    if (path / MANIFEST).exists() or (path / MANIFEST).is_symlink():
        return path
    found = versions(path)
    linked = [version_of(p.name) or 0 for p in path.iterdir() if p.is_symlink()]
    if max(linked, default=0) > max(found, default=0):
        raise IntegrityError(f"{path / str(max(linked))} is a link, not a published version")
    if found:
        return path / str(found[-1])
    if version is not None:
        raise IntegrityError(f"{path / MANIFEST} is missing")
    raise InputError(f"{path} holds no artifact", hint="modelops export SOURCE --to onnx makes one")


def find_newest(folder: Path, formats: Collection[str]) -> Path:
    """Return the version folder published last among the artifacts in ``folder``.

    Of each artifact its newest version counts, where its format is one of ``formats``.

    Raises:
        InputError: there is none.
        IntegrityError: the manifest of one that was published later cannot be read.
    """
    roots = [p for p in folder.iterdir() if versions(p)] if folder.is_dir() else []
    newest = [locate(root) for root in roots]

    def published(version: Path) -> tuple[int, str]:
        manifest = version / MANIFEST
        if not manifest.exists():
            raise IntegrityError(f"{manifest} is missing")
        return manifest.lstat().st_mtime_ns, str(version)

    for version in sorted(newest, key=published, reverse=True):
        if read_manifest(version).format in formats:
            return version
    wanted = " or ".join(sorted(formats))
    target = "vllm" if set(formats) == {TEXT_FORMAT} else "onnx"
    raise InputError(
        f"no artifact of format {wanted} in {folder}",
        hint=f"name one, or make one with: modelops export SOURCE --to {target}",
    )


def _near(path: Path) -> str | None:
    """Say which versions there are, where only the number is wrong; else the nearest name."""
    if version_of(path.name):
        there = versions(path.parent)
        return f"{path.parent} has version {', '.join(map(str, there))}" if there else None
    try:
        names = [p.name for p in path.parent.iterdir() if versions(p) or (p / MANIFEST).exists()]
    except OSError:  # not there, or not to be read
        return None
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {path.parent / near[0]}?" if near else None
