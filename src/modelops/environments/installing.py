"""Making an engine's environment, or taking note of one that the user made."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from modelops.environments.catalogue import Build, Engine, find_engine
from modelops.environments.checking import Interpreter, ask, examine_files, probe
from modelops.environments.children import our_pip, start_tied
from modelops.environments.choosing import (
    Choice,
    check_disk,
    check_machine,
    choose_builds,
    choose_python,
)
from modelops.environments.lockfile import lock_digest
from modelops.environments.packages import UnavailableError, install_lock
from modelops.environments.place import Place, discard
from modelops.environments.record import Record
from modelops.errors import MissingEnvironmentError, ModelopsError, UsageError
from modelops.progress import Progress, silent


@dataclass(frozen=True)
class Installed:
    """The environment in use; ``already`` where nothing had to be done, ``seconds`` it took."""

    record: Record
    already: bool
    seconds: float


def install_engine(
    name: str,
    *,
    folder: Path | None = None,
    gpus: tuple[str, ...] = (),
    build: str | None = None,
    python: Path | None = None,
    reinstall: bool = False,
    progress: Progress = silent,
) -> Installed:
    """Make the environment of engine ``name``, unless a whole and current one is there.

    ``gpus`` are the machine's NVIDIA GPUs, which decide the build where none is asked for.
    ``python`` is the interpreter of an environment of the user's own: checked and noted, never
    changed. The new environment counts from the moment its record is written; until then the
    one before it does.

    Raises:
        UsageError: no such engine or build.
        MissingEnvironmentError: it cannot be made here; the message says why.
        IntegrityError: a package is not the one that was locked.
        UnsafeInputError: others may write to the folder.
    """
    began = time.monotonic()
    engine = find_engine(name)
    if python is not None and (build is not None or reinstall):
        raise UsageError(f"{python} is your own: --build and --reinstall do not go with --python")
    place = Place(name, folder)
    choices = [] if python is not None else choose_builds(engine, gpus, build)
    if python is None and not choices:
        raise MissingEnvironmentError(f"{name} has no build for this machine")
    with place.locked(progress):
        before = _readable(place)
        if python is not None:
            record, already = _note(engine, python, progress), False
            place.write(record)
        elif before is not None and not reinstall and _serves(before, choices, build, progress):
            record, already = before, True
        else:
            record, already = _make(engine, place, choices, progress), False
        stay = place.sweep(record)
        if stay:
            progress(f"{stay[0]} is still in use: the next install or remove takes it away")
    return Installed(record, already, time.monotonic() - began)


def _readable(place: Place) -> Record | None:
    try:
        return place.record()
    except ModelopsError:
        return None  # it is made anew


def _serves(record: Record, choices: list[Choice], build: str | None, progress: Progress) -> bool:
    """Say whether the environment in ``record`` is whole and what would be installed today."""
    if record.kind == "own":
        return build is None and examine_files(record, progress) is None
    wanted = {c.build.name: lock_digest(c.build) for c in choices}
    if wanted.get(record.build) != record.lock:
        return False
    problem = examine_files(record, progress)
    if problem is not None:
        progress(f"making it anew: {problem}")
    return problem is None


def _make(engine: Engine, place: Place, choices: list[Choice], progress: Progress) -> Record:
    place.sweep(_readable(place))
    passed: list[str] = []
    for choice in choices:
        why = "; ".join([choice.why, *passed])
        progress(f"installing {engine.name} {choice.build.version}: {why}")
        try:
            return _build(engine, place, choice.build, why, progress)
        except UnavailableError as error:
            if choice is choices[-1]:
                raise
            passed.append(f"{choice.build.about} was not to be had ({error.message})")
            progress(passed[-1])
    raise AssertionError("the last choice returns or raises")


def _build(engine: Engine, place: Place, build: Build, why: str, progress: Progress) -> Record:
    facts = check_machine(engine.name, build)
    base = choose_python(build, facts.pythons)
    check_disk(build, place.root)
    folder = place.new(f"{build.version}-{build.name}")
    try:
        progress(f"making an environment with {base}")
        python = _venv(base, folder, place)
        temporary = folder / "tmp"
        with place.explained():
            temporary.mkdir()
            log = (place.root / "install.log").open("w", encoding="utf-8")
        with log:
            for lock in build.locks:
                install_lock(python, lock, log, temporary, progress)
            site = ask(python).site
            with place.explained():
                notes = engine.mend(site, build)
                shutil.rmtree(temporary)
            progress("checking: starting the engine's Python")
            told = probe(engine, python, progress, log)
        if told["platform"] != build.platform:
            raise MissingEnvironmentError(
                f"{build.about} says that it runs on {told['platform']}, not {build.platform}",
                hint="modelops doctor shows the accelerator and its driver",
            )
        asked = ask(python)
        record = _record(engine, python, asked, told, why, notes).model_copy(
            update={
                "kind": "managed",
                "build": build.name,
                "folder": str(folder),
                "entries": _entries(asked.site),
                "lock": lock_digest(build),
                "size_bytes": _size(folder),
            }
        )
        place.write(record)
    except BaseException:
        progress("removing what was half-made")
        discard(folder)
        raise
    return record


def _venv(base: Path, folder: Path, place: Place) -> Path:
    options = ["--without-pip"] if our_pip() else []
    with start_tied(base, "venv", *options, str(folder)) as process:
        try:
            said = "".join(process.stdout or ())
        except BaseException:
            process.kill()
            raise
    python = folder / "bin" / "python"
    if process.returncode or not python.exists():
        check = (said.strip().splitlines() or ["it said nothing"])[-1]
        with place.explained():
            (folder / ".writable").touch()  # a full disk says so here
        raise MissingEnvironmentError(
            f"{base} could not make an environment: {check}",
            hint="install its venv module (apt-get install python3-venv)",
        )
    return python


def _note(engine: Engine, given: Path, progress: Progress) -> Record:
    """Return the record of an environment of the user's own, which is looked at and left alone."""
    python = given / "bin" / "python" if given.is_dir() else given
    # Not resolved: what an environment's interpreter links to is not in the environment.
    python = Path(os.path.abspath(python.expanduser()))  # noqa: PTH100
    progress(f"looking at {python}")
    asked = ask(python)
    build = next((b for b in engine.builds if b.distribution in asked.versions), None)
    if build is None:
        raise MissingEnvironmentError(
            f"{python} has no {engine.name}",
            hint=f"install it there yourself, or: modelops engine install {engine.name}",
        )
    told = probe(engine, python, progress)
    notes: tuple[str, ...] = ()
    if str(told["version"]).split("+")[0] != build.version.split("+")[0]:
        notes = (f"modelops is tested with {engine.name} {build.version}, not {told['version']}",)
    there = [p.name for p in asked.site.glob(f"{build.distribution.replace('-', '_')}-*.dist-info")]
    return _record(engine, python, asked, told, "your own, given with --python", notes).model_copy(
        update={"entries": tuple(there)}
    )


def _record(
    engine: Engine,
    python: Path,
    asked: Interpreter,
    told: dict[str, object],
    why: str,
    notes: tuple[str, ...],
) -> Record:
    return Record.model_validate(
        {
            "engine": engine.name,
            "kind": "own",
            "build": "own",
            "why": why,
            "version": told["version"],
            "platform": told["platform"],
            "folder": str(asked.prefix),
            "python": str(python),
            "python_version": asked.version,
            "site": str(asked.site),
            "entries": (),
            "versions": asked.versions,
            "flags": told.get("flags", {}),
            "lock": None,
            "notes": notes,
            "installed": int(time.time()),
            "size_bytes": None,
        }
    )


def _entries(site: Path) -> tuple[str, ...]:
    return tuple(sorted(p.name for p in site.iterdir() if p.name != "__pycache__"))


def _size(folder: Path) -> int:
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            total += (Path(at) / name).lstat().st_size
    return total
