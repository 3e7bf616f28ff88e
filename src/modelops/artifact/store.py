"""Publishing: a private staging folder, then one atomic rename to a number that was free."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from modelops import folder_lock
from modelops.artifact.integrity import check_files, render
from modelops.artifact.manifest import MANIFEST, Manifest
from modelops.artifact.output_path import check_output
from modelops.errors import IntegrityError, MissingEnvironmentError, ParityError, UsageError

_VERSION = re.compile(r"[1-9][0-9]{0,8}\Z", re.ASCII)
_STAGING = ".staging-"
_LOCK = ".lock"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Artifact:
    """One version on disk, with its manifest."""

    path: Path
    version: int
    manifest: Manifest

    def file(self, name: str | None = None) -> Path:
        """Return the path of a file in the manifest; the entry where no name is given."""
        wanted = self.manifest.entry if name is None else name
        if wanted not in self.manifest.files:
            raise UsageError(f"{self.path} holds no file {wanted!r}")
        return self.path / wanted


def version_of(name: str) -> int | None:
    """Return the version that a folder of this name is, or None."""
    return int(name) if _VERSION.match(name) else None


def versions(root: Path) -> list[int]:
    """Return the versions under ``root``, rising; links and files do not count."""
    if not root.is_dir():
        return []
    with os.scandir(root) as scan:
        found = [version_of(e.name) for e in scan if e.is_dir(follow_symlinks=False)]
    return sorted(v for v in found if v is not None)


class Store:
    """The versions of one artifact under ``root``; nothing published is ever changed.

    Raises:
        IntegrityError: the path to ``root`` leads through a link (see ``check_output``).
        UsageError: ``root`` is a file, or itself one version of an artifact.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        with _explained(root):
            self._check()

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a private empty folder on the root's file system, removed on leaving.

        What killed runs left behind is removed first; a run that is alive keeps its own.

        Raises:
            MissingEnvironmentError: the disk is full, or the root cannot be written.
        """
        with _explained(self.root), contextlib.ExitStack() as cleanup:
            self._check()
            fresh = not self.root.exists()
            if fresh:
                cleanup.callback(self._remove_if_empty)
            with self._locked():
                self._remove_leftovers()
                # Joined again, because mkdtemp makes a relative root absolute.
                holder = self.root / Path(tempfile.mkdtemp(prefix=_STAGING, dir=self.root)).name
                cleanup.callback(shutil.rmtree, holder, ignore_errors=True)
                lock = os.open(holder / _LOCK, folder_lock.FLAGS, 0o600)
                cleanup.callback(os.close, lock)
                fcntl.flock(lock, fcntl.LOCK_EX)
                staged = holder / "files"
                staged.mkdir(mode=0o700)
            yield staged

    def publish(self, staged: Path, manifest: Manifest) -> Artifact:
        """Make ``staged`` the next version, whole or not at all.

        The manifest is sealed and written beside the files, which must be exactly those that it
        lists; everything is on the disk before the version can be seen.

        Raises:
            ParityError: the manifest's parity did not pass.
            IntegrityError: the files are not those in the manifest.
            MissingEnvironmentError: the disk is full, or the root cannot be written.
        """
        if staged.parent.parent != self.root or not staged.parent.name.startswith(_STAGING):
            raise UsageError(f"{staged} is not a staging folder of {self.root}")
        if not manifest.parity.passed:
            raise ParityError(f"{manifest.name} is not published: its parity did not pass")
        manifest = manifest.sealed()
        check_files(staged, manifest)
        with _explained(self.root):
            _write(staged / MANIFEST, render(manifest))
            _settle(staged)
            self._check()
            with self._locked():
                version = self._next()
                target = self.root / str(version)
                staged.rename(target)
                _fsync(self.root)
        return Artifact(path=target, version=version, manifest=manifest)

    def _check(self) -> None:
        check_output(self.root)
        if (self.root / MANIFEST).exists():
            raise UsageError(
                f"{self.root} is itself one version of an artifact",
                hint=f"write to its parent: -o {self.root.parent}",
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = self.root / _LOCK
        try:
            fd = folder_lock.acquire(
                path,
                prepare=lambda: self.root.mkdir(parents=True, exist_ok=True),
                waiting=lambda: None,
            )
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise
            raise IntegrityError(
                f"will not write to {self.root}: {path} is a link or a folder, no lock file",
                hint=f"look at it, and remove {path}",
            ) from error
        try:
            yield
        finally:
            os.close(fd)

    def _next(self) -> int:
        # Anything that bears a number counts, a planted link or file too: it is stepped over.
        taken = [version_of(name) or 0 for name in os.listdir(self.root)]  # noqa: PTH208
        return max(taken, default=0) + 1

    def _remove_leftovers(self) -> None:
        with os.scandir(self.root) as scan:
            entries = [e for e in scan if e.name.startswith(_STAGING)]
        for entry in entries:
            path = self.root / entry.name
            if not entry.is_dir(follow_symlinks=False):
                path.unlink()  # a link or a file under our name: never followed
            elif entry.stat(follow_symlinks=False).st_uid == os.geteuid() and not _in_use(path):
                shutil.rmtree(path)

    def _remove_if_empty(self) -> None:
        with contextlib.suppress(OSError), self._locked():
            if os.listdir(self.root) == [_LOCK]:  # noqa: PTH208
                (self.root / _LOCK).unlink()
                self.root.rmdir()


def _in_use(holder: Path) -> bool:
    try:
        fd = os.open(holder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False  # made under the root's lock, so whoever made the folder is gone
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o644), "wb") as file:
        file.write(data)


def _settle(folder: Path) -> None:
    """Give every file and folder its published mode and bring it to the disk, leaves first."""
    for path in (*sorted(folder.rglob("*"), reverse=True), folder):
        path.chmod(0o755 if path.is_dir() else 0o644, follow_symlinks=False)
        _fsync(path)


def _fsync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _explained(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise MissingEnvironmentError(
                f"cannot write to {root}: {error.strerror}; nothing was published",
                hint=f"free some space on the disk that holds {root}, and run again",
            ) from error
        ours = str(error.filename or "").startswith(str(root))
        if ours and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise MissingEnvironmentError(
                f"cannot write to {root}: {error.strerror}; nothing was published",
                hint="choose a folder that you may write to with -o",
            ) from error
        raise
