"""Which engines are there, how they are, and the one an adapter is to start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from modelops.environments.catalogue import ENGINES, Engine, find_engine
from modelops.environments.checking import glance
from modelops.environments.children import UNSET, environment_of
from modelops.environments.lockfile import lock_digest
from modelops.environments.place import Place
from modelops.environments.record import Record
from modelops.errors import MissingEnvironmentError, ModelopsError
from modelops.signature import Frozen

State = Literal["ready", "outdated", "broken", "half-made", "absent"]


class EngineStatus(Frozen):
    """How one engine's environment is. ``outdated``: whole, but not what would be installed today.

    ``why`` is why this build was chosen, ``problem`` what is not as it should be, ``fix`` the
    command that mends it. Sizes in bytes; ``leftovers`` are folders that no record names.
    """

    engine: str
    about: str
    state: State
    root: str
    kind: Literal["managed", "own"] | None = None
    build: str | None = None
    version: str | None = None
    platform: str | None = None
    python: str | None = None
    python_version: str | None = None
    folder: str | None = None
    size_bytes: int | None = None
    installed: int | None = None
    why: str | None = None
    notes: tuple[str, ...] = ()
    problem: str | None = None
    fix: str | None = None
    leftovers: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineEnvironment:
    """What an adapter needs to start an engine.

    ``version`` is the engine's own, ``versions`` those of every distribution beside it by its
    normalised name, ``flags`` the options of its server with their choices, ``platform`` what it
    computes on (``cpu``, ``cuda``). ``current`` is false where modelops has other locks by now.
    """

    engine: str
    python: Path
    kind: Literal["managed", "own"]
    build: str
    version: str
    platform: str
    versions: Mapping[str, str]
    flags: Mapping[str, tuple[str, ...] | None]
    variables: Mapping[str, str]
    unset: tuple[str, ...]
    notes: tuple[str, ...]
    current: bool

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the whole environment of a process of this engine; ``base`` is this process's."""
        return environment_of(self.python, self.variables, base)


def find_environment(name: str, folder: Path | None = None) -> EngineEnvironment:
    """Return the environment of engine ``name``: the interpreter, the build, what to set.

    ``folder`` is where environments are, as of ``environments_folder``.

    Raises:
        UsageError: no engine of this name has an environment.
        MissingEnvironmentError: it is absent, half-made or broken; the hint mends it.
        UnsafeInputError: somebody else could have written its record.
    """
    engine = find_engine(name)
    place = Place(name, folder)
    record = place.record()
    status = _status(engine, place, record)
    if record is None or status.state in ("absent", "half-made", "broken"):
        raise MissingEnvironmentError(
            f"the engine {name} is {_said(status)}", hint=status.fix or place.command
        )
    return EngineEnvironment(
        engine=name,
        python=Path(record.python),
        kind=record.kind,
        build=record.build,
        version=record.version,
        platform=record.platform,
        versions=record.versions,
        flags=record.flags,
        variables=engine.variables,
        unset=UNSET,
        notes=record.notes,
        current=status.state == "ready",
    )


def engine_statuses(folder: Path | None = None) -> list[EngineStatus]:
    """Return how every engine's environment is, installed or not; nothing in one is run."""
    found = []
    for engine in ENGINES.values():
        place = Place(engine.name, folder)
        try:
            found.append(_status(engine, place, place.record()))
        except ModelopsError as error:
            found.append(
                EngineStatus(
                    engine=engine.name,
                    about=engine.about,
                    state="broken",
                    root=str(place.root),
                    problem=error.message,
                    fix=error.hint,
                )
            )
    return found


def _status(engine: Engine, place: Place, record: Record | None) -> EngineStatus:
    leftovers = tuple(str(p) for p in place.leftovers(record))
    if record is None:
        return EngineStatus(
            engine=engine.name,
            about=engine.about,
            state="half-made" if leftovers else "absent",
            root=str(place.root),
            problem="an installation was cut short" if leftovers else None,
            fix=place.command,
            leftovers=leftovers,
        )
    state, problem, fix = _judged(engine, place, record)
    return EngineStatus(
        engine=engine.name,
        about=engine.about,
        state=state,
        root=str(place.root),
        kind=record.kind,
        build=record.build,
        version=record.version,
        platform=record.platform,
        python=record.python,
        python_version=record.python_version,
        folder=record.folder,
        size_bytes=record.size_bytes,
        installed=record.installed,
        why=record.why,
        notes=record.notes,
        problem=problem,
        fix=fix,
        leftovers=leftovers,
    )


def _judged(engine: Engine, place: Place, record: Record) -> tuple[State, str | None, str | None]:
    if record.kind == "own":
        problem = glance(record)
        if problem is None:
            return "ready", None, None
        return (
            "broken",
            f"your own environment has changed: {problem}",
            (f"{place.command} --python {record.python}"),
        )
    if Path(record.folder).parent != place.root:
        return "broken", f"it was made in {record.folder}, and cannot be moved", place.command
    problem = glance(record)
    if problem is not None:
        return "broken", problem, place.command
    build = next((b for b in engine.builds if b.name == record.build), None)
    if build is None or not build.locked or lock_digest(build) != record.lock:
        return "outdated", "this version of modelops pins other versions", place.command
    return "ready", None, None


def _said(status: EngineStatus) -> str:
    if status.state == "absent":
        return f"not installed in {Path(status.root).parent}"
    return f"{status.state}: {status.problem}"
