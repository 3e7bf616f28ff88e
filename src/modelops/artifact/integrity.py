"""Whether an artifact's files are those that were published: all of them, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from modelops import __version__
from modelops.artifact.manifest import MANIFEST, FileEntry, Manifest, Role
from modelops.errors import IntegrityError
from modelops.progress import Progress, silent

LEAF = 64 * 2**20
MAX_MANIFEST = 16 * 2**20
_BLOCK = 2**20
_SHOWN = 10
_SCHEMA = 1


def hash_files(
    folder: Path, roles: Mapping[str, Role] | Callable[[str], Role]
) -> dict[str, FileEntry]:
    """Describe every file under ``folder`` but the manifest, by its path with forward slashes.

    ``roles`` gives each path's role, as a mapping or a function. Files are read in parallel in
    blocks of 1 MiB.

    Raises:
        IntegrityError: a file is a link, has a second name, is no regular file, has a name that
            no manifest may hold, or is missing from ``roles``.
    """
    sizes, problems = _walk(folder)
    sizes.pop(MANIFEST, None)
    problems += _name_problems(sizes)
    if not callable(roles):
        problems += [(n, "has no role in the manifest") for n in sizes if n not in roles]
    if problems:
        raise _refusal(folder, problems)
    role = roles if callable(roles) else roles.__getitem__
    hashes = _hash_all(folder, sizes)
    return {
        name: FileEntry(size=size, sha256=hashes[name], role=role(name))
        for name, size in sorted(sizes.items())
    }


def check_files(folder: Path, manifest: Manifest, progress: Progress = silent) -> None:
    """Compare every file under ``folder`` with the manifest.

    Raises:
        IntegrityError: a file is altered, missing, extra, renamed, a link, has a second name or
            is no regular file; or the manifest names a path outside the folder. Up to ten are
            listed.
    """
    problems = _name_problems(manifest.files)
    entry = manifest.files.get(manifest.entry)
    if entry is None or entry.role != "model":
        problems.append((manifest.entry, "is the entry, but not among the model's files"))
    if problems:
        raise _refusal(folder, problems)
    found, problems = _walk(folder)
    found.pop(MANIFEST, None)
    odd = {name for name, _why in problems}
    for name in manifest.files:
        # A file below a link is not listed by the walk: the link has been named already.
        if name not in found and not any(f"{name}/".startswith(f"{o}/") for o in odd):
            problems.append((name, "is missing"))
    for name, size in found.items():
        if name not in manifest.files:
            problems.append((name, "is extra: the manifest does not know it"))
        elif size != manifest.files[name].size:
            problems.append((name, f"is altered: {size} bytes, not {manifest.files[name].size}"))
    if problems:
        raise _refusal(folder, problems)
    progress(f"checking {len(found)} files")
    hashes = _hash_all(folder, found)
    altered = [n for n in sorted(found) if hashes[n] != manifest.files[n].sha256]
    if altered:
        raise _refusal(folder, [(n, "is altered: its hash is another") for n in altered])


def check_file(folder: Path, manifest: Manifest, name: str) -> None:
    """Compare one file under ``folder`` with the manifest, for a reader of that file alone.

    Raises:
        IntegrityError: it is missing, altered or no regular file.
    """
    entry = manifest.files[name]
    size = os.lstat(folder / name).st_size if os.path.lexists(folder / name) else None
    if size is None:
        raise _refusal(folder, [(name, "is missing")])
    if size != entry.size or _hash_all(folder, {name: size})[name] != entry.sha256:
        raise _refusal(folder, [(name, "is altered")])


def read_manifest(folder: Path) -> Manifest:
    """Read and check ``folder/modelops.json``; the files that it lists are not looked at.

    Raises:
        IntegrityError: it is missing, a link, over 16 MiB, not the JSON that modelops writes, of
            another schema version, or its digest or seal are not those of its contents.
    """
    path = folder / MANIFEST
    raw = _parse(path, read_plain(path, MAX_MANIFEST))
    if raw.get("schema_version") != _SCHEMA:
        raise _other_schema(path, raw)
    try:
        manifest = Manifest.model_validate_json(json.dumps(raw))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise IntegrityError(f"{path} is no valid manifest: {where}: {first['msg']}") from error
    if manifest.seal != manifest.computed_seal():
        raise IntegrityError(f"{path} was edited after it was published: its seal does not fit")
    if manifest.digest != manifest.computed_digest():
        raise IntegrityError(f"{path}: the digest is not that of the files it lists")
    if render(manifest) != read_plain(path, MAX_MANIFEST):
        raise IntegrityError(f"{path} was edited after it was published: its bytes differ")
    return manifest


def render(manifest: Manifest) -> bytes:
    """Return the one byte sequence that ``modelops.json`` may hold for ``manifest``."""
    value = manifest.written()
    try:
        return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise IntegrityError(f"the manifest of {manifest.name} cannot be written: {error}") from (
            error
        )


def is_plain_name(name: str) -> bool:
    """Whether ``name`` is a relative path, with forward slashes, that stays in its folder."""
    if not name or len(name) > 1024 or "\\" in name or ":" in name:
        return False
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in name):
        return False
    return all(p not in ("", ".", "..") and len(p.encode()) < 256 for p in name.split("/"))


def read_plain(path: Path, limit: int) -> bytes:
    """Read a regular file with one name, of at most ``limit`` bytes, without following a link.

    Raises:
        IntegrityError: it is missing, a link, no regular file, or larger.
    """
    fd = _open_plain(path)
    with os.fdopen(fd, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise IntegrityError(f"{path} is larger than {limit} bytes")
    return data


def shown(name: str) -> str:
    """Return ``name`` fit for a message, whatever bytes it holds."""
    return name if name.isprintable() else ascii(name)


def _parse(path: Path, data: bytes) -> dict[str, Any]:
    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [k for k, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ValueError("a key stands there twice")
        return dict(pairs)

    def constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        raw = json.loads(data.decode("utf-8"), object_pairs_hook=distinct, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        raise IntegrityError(f"{path} is no manifest: {error}") from error
    if not isinstance(raw, dict):
        raise IntegrityError(f"{path} is no manifest: it holds no JSON object")
    return raw


def _other_schema(path: Path, raw: dict[str, Any]) -> IntegrityError:
    toolchain = raw.get("toolchain")
    writer = toolchain.get("modelops") if isinstance(toolchain, dict) else None
    version = raw.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        return IntegrityError(f"{path} is no manifest: it has no schema_version")
    need = f"modelops {writer}" if isinstance(writer, str) else f"a modelops that reads {version}"
    return IntegrityError(
        f"{path} has schema version {version}; modelops {__version__} reads {_SCHEMA}. "
        f"It needs {shown(need)}",
        hint="install that version of modelops, or export the model again with this one",
    )


def _open_plain(path: Path) -> int:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for somebody to write into it.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        why = "is a link" if path.is_symlink() else (error.strerror or "cannot be read").lower()
        if isinstance(error, FileNotFoundError):
            why = "is missing"
        raise IntegrityError(f"{shown(str(path))} {why}") from error
    odd = _oddness(os.fstat(fd))
    if odd:
        os.close(fd)
        raise IntegrityError(f"{shown(str(path))} {odd}")
    return fd


def _oddness(status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "is a link"
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    if status.st_nlink > 1:
        return "is a hard link: the file has a second name elsewhere"
    return None


def _walk(folder: Path) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Return the size of each regular file, and what else is there and why it may not be."""
    sizes: dict[str, int] = {}
    problems: list[tuple[str, str]] = []
    for name, status in _entries(folder, ""):
        why = _oddness(status)
        if why:
            problems.append((name, why))
        else:
            sizes[name] = status.st_size
    return sizes, problems


def _entries(folder: Path, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        with os.scandir(folder) as scan:
            entries = sorted(scan, key=lambda e: e.name)
    except OSError as error:
        raise IntegrityError(f"{shown(str(folder))} cannot be read: {error.strerror}") from error
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _entries(folder / entry.name, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry.stat(follow_symlinks=False)


def _name_problems(names: Iterable[str]) -> list[tuple[str, str]]:
    problems = []
    seen: dict[str, str] = {}
    for name in names:
        if not is_plain_name(name):
            problems.append((name, "is not a plain path inside the artifact"))
            continue
        # One name on some file systems, two on others.
        key = unicodedata.normalize("NFC", name).casefold()
        if key == MANIFEST or key in seen:
            problems.append((name, f"is too like {seen.get(key, MANIFEST)}"))
        seen[key] = name
    return problems


def _hash_all(folder: Path, sizes: Mapping[str, int]) -> dict[str, str]:
    leaves = [
        (name, offset, min(LEAF, size - offset))
        for name, size in sizes.items()
        for offset in range(0, max(size, 1), LEAF)
    ]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        parts: dict[str, list[bytes]] = {name: [] for name in sizes}
        for (name, _, _), part in zip(
            leaves, pool.map(lambda leaf: _hash_leaf(folder, *leaf), leaves), strict=True
        ):
            parts[name].append(part)
    return {name: _tree(digests) for name, digests in parts.items()}


def _tree(leaves: list[bytes]) -> str:
    return leaves[0].hex() if len(leaves) == 1 else hashlib.sha256(b"".join(leaves)).hexdigest()


def _hash_leaf(folder: Path, name: str, offset: int, length: int) -> bytes:
    digest = hashlib.sha256()
    fd = _open_plain(folder / name)
    try:
        while length:
            block = os.pread(fd, min(_BLOCK, length), offset)
            if not block:
                raise _refusal(folder, [(name, "became shorter while it was read")])
            digest.update(block)
            offset += len(block)
            length -= len(block)
    finally:
        os.close(fd)
    return digest.digest()


def _refusal(folder: Path, problems: list[tuple[str, str]]) -> IntegrityError:
    lines = [f"{shown(name)} {why}" for name, why in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        lines.append(f"… and {len(problems) - _SHOWN} more")
    return IntegrityError(
        f"{shown(str(folder))} is not what was published: " + "; ".join(lines),
        hint="export the model again, or restore the folder from where it was published",
    )
