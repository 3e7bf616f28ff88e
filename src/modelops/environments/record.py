"""What is known of one installed environment; written last, so without it there is none."""

from __future__ import annotations

from typing import Literal

from modelops.signature import Frozen

RECORD = "environment.json"
SCHEMA_VERSION = 1


class Record(Frozen):
    """One whole environment. ``kind`` is ``own`` where a user made it and only told of it.

    ``folder`` is where it was made, because an environment cannot be moved; ``entries`` is what
    its site-packages held, ``versions`` every distribution there, ``flags`` the server's options
    with their choices. ``lock`` is None for the user's own. Sizes in bytes, times in UNIX seconds.
    """

    schema_version: Literal[1] = 1
    engine: str
    kind: Literal["managed", "own"]
    build: str
    why: str
    version: str
    platform: str
    folder: str
    python: str
    python_version: str
    site: str
    entries: tuple[str, ...]
    versions: dict[str, str]
    flags: dict[str, tuple[str, ...] | None]
    lock: str | None
    notes: tuple[str, ...]
    installed: int
    size_bytes: int | None
