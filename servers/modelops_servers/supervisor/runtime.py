"""A private folder for the engine hosts' sockets; what killed supervisors left is removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from modelops.errors import MissingEnvironmentError
from modelops_servers.keeper import leftovers

_PREFIX = "modelops-run-"
# A younger folder may be about to be locked.
_YOUNG_SECONDS = 60
# The path of a unix socket has 107 bytes; a host's name in the folder takes up to 32.
_LONGEST = 74


class RuntimeFolder:
    """Exists until ``close``; however this process ends, the next one finds that it is nobody's."""

    def __init__(self) -> None:
        """Make the folder.

        Raises:
            MissingEnvironmentError: there is no folder for temporary files, or its path is too
                long.
        """
        hint = "set TMPDIR to a folder with a short path, such as /tmp"
        try:
            _sweep(Path(tempfile.gettempdir()))
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # The lock goes with the process; where it is free, the folder is nobody's.
            lock = _lock(self.path)
        except OSError as error:
            raise MissingEnvironmentError(
                f"no folder for unix sockets can be made: {error}", hint=hint
            ) from error
        if lock is None:
            raise MissingEnvironmentError(f"somebody else uses {self.path}")
        self._lock = lock
        if len(os.fsencode(self.path)) > _LONGEST:
            self.close()
            raise MissingEnvironmentError(
                f"unix sockets cannot be made in {self.path.parent}: its path is too long",
                hint=hint,
            )

    def close(self) -> None:
        """Remove it, with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _lock(folder: Path) -> int | None:
    """Lock the folder and return the descriptor that holds the lock; None where another has it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if status.st_uid != os.getuid() or time.time() - status.st_mtime < _YOUNG_SECONDS:
                continue
            fd = _lock(folder)
            if fd is not None:
                leftovers.sweep(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(fd)
