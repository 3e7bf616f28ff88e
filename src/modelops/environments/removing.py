"""Taking an engine's environment away: what modelops made, and nothing else."""

from __future__ import annotations

from pathlib import Path

from modelops.environments.catalogue import find_engine
from modelops.environments.place import Place, processes_in
from modelops.errors import InputError, MissingEnvironmentError, ModelopsError
from modelops.progress import Progress, silent
from modelops.signature import Frozen


class Removed(Frozen):
    """What was removed; ``own`` is the user's environment that was only forgotten."""

    engine: str
    folders: tuple[str, ...]
    own: str | None = None


def remove_engine(name: str, *, folder: Path | None = None, progress: Progress = silent) -> Removed:
    """Remove the environment of engine ``name`` and every leftover of an installation.

    An environment of the user's own is forgotten and left as it is.

    Raises:
        UsageError: no such engine.
        InputError: there is nothing to remove.
        MissingEnvironmentError: a process runs from it, or it cannot be written.
    """
    find_engine(name)
    place = Place(name, folder)
    if not place.root.is_dir():
        raise _nothing(name, place)
    with place.locked(progress):
        try:
            record = place.record()
        except ModelopsError:
            record = None  # damaged: what lies beside it is removed all the same
        folders = place.leftovers()
        if not folders and record is None:
            place.forget()
            place.clear()
            raise _nothing(name, place)
        for path in folders:
            busy = processes_in(path)
            if busy:
                raise MissingEnvironmentError(
                    f"{name} is in use by process {', '.join(map(str, busy))}: nothing was removed",
                    hint="stop it first (modelops serve ends its engines on SIGTERM)",
                )
        progress(f"removing {name}")
        place.forget()
        place.sweep(None)
        place.clear()
    own = record.folder if record is not None and record.kind == "own" else None
    return Removed(engine=name, folders=tuple(map(str, folders)), own=own)


def _nothing(name: str, place: Place) -> InputError:
    return InputError(
        f"{name} is not installed in {place.base}", hint="modelops engine list shows what is"
    )
