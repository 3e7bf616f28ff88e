"""A folder's lock: who holds it works alone in the folder, and it goes with its process."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""To open a lock file with: it is made where it is not, no link is followed, no pipe waited for."""


def acquire(path: Path, prepare: Callable[[], None], waiting: Callable[[], None]) -> int:
    """Lock the file ``path`` and return its descriptor; the lock is held until that is closed.

    ``prepare`` makes the folder, again where whoever held the lock took it away; ``waiting`` is
    called once before a wait for somebody else.

    Raises:
        OSError: the file cannot be opened, or is a link or a folder.
    """
    while True:
        prepare()
        try:
            fd = os.open(path, FLAGS, 0o644)
        except FileNotFoundError:
            continue  # the folder was removed in between
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waiting()
                fcntl.flock(fd, fcntl.LOCK_EX)
            if _is_still(path, fd):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(fd))
    except FileNotFoundError:
        return False
