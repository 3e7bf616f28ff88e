"""Where the models to serve are: paths as they stand, and ids of the hub, which are fetched."""

from __future__ import annotations

from pathlib import Path

from modelops.checkpoint import source as checkpoints
from modelops.progress import Progress

_SCHEME = "hf:"  # a Path keeps one slash of two


def local_source(
    source: Path, progress: Progress, *, beside: Path | None = None
) -> tuple[Path, str | None]:
    """Return the path of what is to be served, and its name where its path does not tell it.

    ``hf://org/name@revision`` is fetched from the hub, where the local cache does not have it.
    Any other path is relative to the folder ``beside``; where none is given, a bare ``org/name``
    is the hub's too, unless there is a folder ``org``.

    Raises:
        InputError: the hub does not have it, or does not give it.
        MissingEnvironmentError: the hub cannot be reached.
    """
    if source.parts[:1] == (_SCHEME,):
        asked = "hf://" + "/".join(source.parts[1:])
    elif beside is not None:
        return beside / source, None
    elif len(source.parts) == 2 and not source.is_absolute() and not source.parent.exists():
        asked = str(source)
    else:
        return source, None
    found = checkpoints.resolve(asked, progress=progress)
    progress(f"{asked} is at revision {found.revision}")
    return found.path, found.name
