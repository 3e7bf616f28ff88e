"""What an artifact must not tell: the paths, the user and the host of the exporting machine."""

from __future__ import annotations

import getpass
import mmap
import socket
import sys
from pathlib import Path

# Shorter host names turn up by chance in tokenizers and weights.
_SHORTEST = 8


def leaks(folder: Path) -> list[str]:
    """Return which file of ``folder`` holds a path, user or host name of this machine."""
    secrets = {
        str(p).encode(): what
        for p, what in (
            (Path.home(), "the home folder"),
            (Path.cwd(), "the working folder"),
            (Path(sys.prefix), "the Python environment"),
            (folder, "the artifact's own path"),
        )
        if len(p.parts) > 2
    }
    if len(host := socket.gethostname()) >= _SHORTEST:
        secrets[host.encode()] = "the host name"
    if user := _user():
        # As part of a path: a bare user name may be any word of a vocabulary.
        secrets |= {f"{home}/{user}/".encode(): "the user name" for home in ("/home", "/Users")}
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            name = path.relative_to(folder).as_posix()
            found += [
                f"{name} holds {what}" for secret, what in secrets.items() if data.find(secret) >= 0
            ]
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""
