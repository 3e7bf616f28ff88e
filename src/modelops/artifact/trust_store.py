"""The user's trust store: digests of artifacts whose code may run on this machine."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import platformdirs
from pydantic import Field, ValidationError

from modelops.errors import InputError, IntegrityError, MissingEnvironmentError, UnsafeInputError
from modelops.signature import Frozen

STORE_VARIABLE = "MODELOPS_TRUST_STORE"
How = Literal["export", "decision"]

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")
_LIMIT = 16 * 2**20


class TrustedDigest(Frozen):
    """One digest, the name it had, whether an export or a person added it, and when (UNIX s)."""

    digest: str
    name: str
    how: How
    added: int


class _Store(Frozen):
    version: Literal[1] = 1
    digests: dict[str, TrustedDigest] = Field(default_factory=dict)


def store_path() -> Path:
    """Return where the store is: ``$MODELOPS_TRUST_STORE``, or the user's configuration folder."""
    given = os.environ.get(STORE_VARIABLE)
    return Path(given) if given else Path(platformdirs.user_config_dir("modelops")) / "trust.json"


def is_trusted(digest: str) -> bool:
    """Whether code of the artifact with this digest may run.

    Raises:
        UnsafeInputError: the store could have been written by somebody else.
        IntegrityError: the store is damaged.
    """
    return digest in _read(store_path()).digests


def trusted() -> list[TrustedDigest]:
    """Return every trusted digest, oldest first; raises as ``is_trusted`` does."""
    return sorted(_read(store_path()).digests.values(), key=lambda d: (d.added, d.digest))


def trust(digest: str, name: str, how: How) -> None:
    """Add a digest (``sha256:`` and 64 hex digits); one that is there keeps its first entry.

    Raises:
        InputError: ``digest`` is not one.
        UnsafeInputError: the store could have been written by somebody else.
        IntegrityError: the store is damaged.
    """
    if not _DIGEST.match(digest):
        raise InputError(f"{digest!r} is no digest", hint="sha256: and 64 hexadecimal digits")
    with _locked(store_path()) as path:
        digests = dict(_read(path).digests)
        entry = TrustedDigest(digest=digest, name=name, how=how, added=int(time.time()))
        digests.setdefault(digest, entry)
        _write(path, _Store(digests=digests))


def distrust(digest: str) -> bool:
    """Remove a digest; return whether it was there. Raises as ``trust`` does."""
    with _locked(store_path()) as path:
        digests = dict(_read(path).digests)
        if digests.pop(digest, None) is None:
            return False
        _write(path, _Store(digests=digests))
        return True


def _read(path: Path) -> _Store:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _Store()
    except OSError as error:
        why = "it is a link" if path.is_symlink() else str(error.strerror)
        raise _unsafe(path, why) from error
    with os.fdopen(fd, "rb") as file:
        _check_owner(path, os.fstat(fd))
        data = file.read(_LIMIT + 1)
    try:
        if len(data) > _LIMIT:
            raise ValueError("it is too large")
        store = _Store.model_validate_json(data)
        if any(key != d.digest or not _DIGEST.match(key) for key, d in store.digests.items()):
            raise ValueError("it holds what is no digest")
    except (ValueError, ValidationError) as error:
        raise IntegrityError(
            f"the trust store {path} is damaged: {error}",
            hint=f"remove {path}, then trust again what you need",
        ) from error
    return store


def _check_owner(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _unsafe(path, "it is no regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise _unsafe(path, f"it belongs to another user (uid {status.st_uid})")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _unsafe(path, "others may write to it", hint=f"look at it, then: chmod 600 {path}")
    folder = path.parent.stat()
    if folder.st_mode & stat.S_IWOTH and not folder.st_mode & stat.S_ISVTX:
        raise _unsafe(path, f"anybody may write to {path.parent}", hint=f"chmod o-w {path.parent}")


def _unsafe(path: Path, why: str, hint: str | None = None) -> UnsafeInputError:
    return UnsafeInputError(
        f"the trust store {path} cannot be relied on: {why}",
        hint=hint or f"remove {path}, then trust again what you need",
    )


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[Path]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise MissingEnvironmentError(
            f"the trust store {path} cannot be made: {error.strerror}",
            hint="set MODELOPS_TRUST_STORE to a file that you may write",
        ) from error
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    lock = path.with_name(path.name + ".lock")
    try:
        fd = os.open(lock, flags, 0o600)
    except OSError as error:
        raise _unsafe(path, f"{lock}: {error.strerror}", hint=f"remove {lock}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield path
    finally:
        os.close(fd)


def _write(path: Path, store: _Store) -> None:
    fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # made with mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            json.dump(store.model_dump(mode="json"), file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
