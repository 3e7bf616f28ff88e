"""Where an engine's environments are, who may change them, and which one is in use."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from modelops import folder_lock
from modelops.environments.record import RECORD, Record
from modelops.errors import IntegrityError, MissingEnvironmentError, UnsafeInputError
from modelops.progress import Progress, silent

FOLDER_VARIABLE = "MODELOPS_ENGINES_DIR"

_LOCK = ".lock"
# In every folder that modelops made: nothing without it is ever removed.
_MARK = ".made-by-modelops"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def environments_folder(given: Path | None = None) -> Path:
    """Return the folder of all engines: ``given``, ``$MODELOPS_ENGINES_DIR``, or user data."""
    if given is None and os.environ.get(FOLDER_VARIABLE):
        given = Path(os.environ[FOLDER_VARIABLE])
    if given is None:
        given = Path(platformdirs.user_data_dir("modelops")) / "engines"
    return given.expanduser().absolute()


class Place:
    """The environments of one engine: a record, and folders of which it names one.

    An environment is made in its own folder for good, since it cannot be moved, and counts from
    the moment its record is written. A folder that no record names is a leftover.
    """

    def __init__(self, engine: str, folder: Path | None = None) -> None:
        self.base = environments_folder(folder)
        self.root = self.base / engine
        self.engine = engine
        self.command = f"modelops engine install {engine}"
        if folder is not None:
            self.command += f" --engines-dir {folder}"

    def record(self) -> Record | None:
        """Return the record of the environment in use, or None where there is none.

        Raises:
            UnsafeInputError: somebody else could have written it.
            IntegrityError: it is damaged.
        """
        path = self.root / RECORD
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._unsafe(path, str(error.strerror)) from error
        with os.fdopen(fd, "rb") as file:
            self._check_owner(path, os.fstat(fd))
            data = file.read()
        try:
            return Record.model_validate_json(data)
        except ValidationError as error:
            raise IntegrityError(
                f"{path} is damaged, or of another version of modelops",
                hint=f"{self.command} --reinstall",
            ) from error

    def write(self, record: Record) -> None:
        """Make ``record`` the one in use, whole or not at all."""
        with self.explained():
            fd, name = tempfile.mkstemp(prefix=f".{RECORD}-", dir=self.root)
            temporary = Path(name)
            try:
                with os.fdopen(fd, "w", encoding="utf-8") as file:
                    file.write(record.model_dump_json(indent=1))
                    file.flush()
                    os.fsync(file.fileno())
                temporary.chmod(0o644)
                temporary.replace(self.root / RECORD)
            finally:
                temporary.unlink(missing_ok=True)

    def new(self, label: str) -> Path:
        """Make and return an empty folder for one environment, marked as ours."""
        with self.explained():
            folder = self.root / f"{label}-{secrets.token_hex(4)}"
            folder.mkdir()
            (folder / _MARK).touch()
            return folder

    def leftovers(self, record: Record | None = None) -> list[Path]:
        """Return the folders of environments that are not the one in ``record``."""
        try:
            with os.scandir(self.root) as scan:
                found = [e for e in scan if e.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        paths = [self.root / e.name for e in found if (Path(e.path) / _MARK).is_file()]
        return sorted(p for p in paths if record is None or str(p) != record.folder)

    def sweep(self, record: Record | None) -> list[Path]:
        """Remove the leftovers that no process runs from; return those that had to stay."""
        stay = []
        for folder in self.leftovers(record):
            if processes_in(folder):
                stay.append(folder)
            else:
                with self.explained():
                    _remove(folder)
        return stay

    @contextlib.contextmanager
    def locked(self, progress: Progress = silent) -> Iterator[None]:
        """Hold the engine's lock: one installation or removal at a time.

        Raises:
            MissingEnvironmentError: the folder cannot be made or written.
            UnsafeInputError: others may write to it.
        """

        def prepare() -> None:
            self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._check_owner(self.root, self.root.stat())

        def waiting() -> None:
            progress(f"waiting: another command is changing {self.engine} here")

        with self.explained():
            fd = folder_lock.acquire(self.root / _LOCK, prepare, waiting)
        try:
            yield
        finally:
            os.close(fd)

    def forget(self) -> None:
        """Remove the record, so that whatever is left of the environment is a leftover."""
        with self.explained():
            (self.root / RECORD).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the engine's folder, if nothing but the lock and the log is in it."""
        with contextlib.suppress(OSError):
            if set(os.listdir(self.root)) <= {_LOCK, "install.log"}:  # noqa: PTH208
                (self.root / "install.log").unlink(missing_ok=True)
                (self.root / _LOCK).unlink(missing_ok=True)
                self.root.rmdir()

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Turn what the system says about this place into errors with a remedy."""
        try:
            yield
        except OSError as error:
            if error.errno in _FULL:
                raise MissingEnvironmentError(
                    f"the disk that holds {self.base} is full; nothing half-made is kept",
                    hint=f"free some space, or choose another disk: {self._elsewhere()}",
                ) from error
            raise MissingEnvironmentError(
                f"cannot write to {error.filename or self.root}: {error.strerror}",
                hint=f"choose a folder that you may write to: {self._elsewhere()}",
            ) from error

    def _elsewhere(self) -> str:
        return f"--engines-dir DIR, or {FOLDER_VARIABLE}"

    def _check_owner(self, path: Path, status: os.stat_result) -> None:
        if status.st_uid not in (os.geteuid(), 0):
            raise self._unsafe(path, f"it belongs to another user (uid {status.st_uid})")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._unsafe(
                path, "others may write to it", f"look at it, then: chmod go-w {path}"
            )
        parent = path.parent.stat()
        if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
            why = f"anybody may write to {path.parent}"
            raise self._unsafe(path, why, f"chmod o-w {path.parent}")

    def _unsafe(self, path: Path, why: str, hint: str | None = None) -> UnsafeInputError:
        return UnsafeInputError(
            f"{path} cannot be relied on: {why}", hint=hint or f"look at it, and remove {path}"
        )


def processes_in(folder: Path) -> list[int]:
    """Return the processes of this user that run from, or have loaded, something in ``folder``."""
    found = []
    prefix = f"{folder}/"
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or is not ours to look at
            command = (process / "cmdline").read_text(errors="replace").split("\0")[0]
            # A process may rename itself, but not what it has loaded.
            if command.startswith(prefix) or prefix in (process / "maps").read_text():
                found.append(int(process.name))
    return sorted(found)


def _remove(folder: Path) -> None:
    """Remove a folder of ours; its mark goes last, so that an interrupted removal goes on later."""
    for path in folder.iterdir():
        if path.name == _MARK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (folder / _MARK).unlink()
    folder.rmdir()


def discard(folder: Path) -> None:
    """Remove a half-made environment as far as possible; what stays is swept by the next run."""
    with contextlib.suppress(OSError):
        _remove(folder)
