"""Whether an environment is what it should be: at a glance, file by file, and by using it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from modelops.environments.catalogue import Engine
from modelops.environments.children import environment_of, start_tied
from modelops.environments.record import Record
from modelops.errors import MissingEnvironmentError
from modelops.progress import Progress, silent

_SHOWN = 3
_LOOK = """
import importlib.metadata as m, json, re, sys, sysconfig
found = {re.sub(r"[-_.]+", "-", d.name).lower(): d.version for d in m.distributions() if d.name}
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "site": sysconfig.get_path("platlib"),
    "versions": dict(sorted(found.items())),
}))
"""


@dataclass(frozen=True)
class Interpreter:
    """What a Python says of itself: its version, where it installs to, what is installed."""

    version: str
    prefix: Path
    site: Path
    versions: dict[str, str]


def glance(record: Record) -> str | None:
    """Return what is visibly wrong with an environment, in a millisecond; None if nothing is."""
    python = Path(record.python)
    if not python.exists():
        what = "links to a Python that is gone" if python.is_symlink() else "is gone"
        return f"its interpreter {python} {what}"
    if not os.access(python, os.X_OK):
        return f"its interpreter {python} cannot be run"
    site = Path(record.site)
    gone = [name for name in record.entries if not (site / name).exists()]
    return _gone(gone) if gone else None


def examine_files(record: Record, progress: Progress = silent) -> str | None:
    """Return what is wrong with the files of an environment; every installed one is looked at."""
    progress("checking every installed file")
    found = glance(record)
    if found is not None or record.kind == "own":
        return found
    wrong = list(_wrong_files(Path(record.site)))
    return _gone(wrong) if wrong else None


def ask(python: Path) -> Interpreter:
    """Return what the interpreter ``python`` says of itself.

    Raises:
        MissingEnvironmentError: it cannot be run.
    """
    try:
        done = subprocess.run(
            [str(python), "-P", "-c", _LOOK],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env=environment_of(python, {}),
        )
        told = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise MissingEnvironmentError(
            f"{python} is no Python 3.11 or newer that can be run: {error}",
            hint="give the interpreter of an environment, such as .venv/bin/python",
        ) from error
    return Interpreter(told["version"], Path(told["prefix"]), Path(told["site"]), told["versions"])


def probe(
    engine: Engine,
    python: Path,
    progress: Progress,
    log: TextIO | None = None,
    timeout: float = 600,
) -> dict[str, Any]:
    """Use the engine inside its environment and return what it says; ``timeout`` in seconds.

    What libraries write in passing goes into ``log``.

    Raises:
        MissingEnvironmentError: it cannot be used; the message has the step and the last line.
    """
    process = start_tied(python, str(engine.probe), variables=engine.variables)
    facts: dict[str, Any] = {}
    step, last = "starting it", "it said nothing"
    watchdog = _Watchdog(process, timeout)
    with process:
        try:
            with watchdog:
                for line in process.stdout or ():
                    told = _told(line)
                    if told is None:
                        last = line.strip() or last
                        if log is not None:
                            log.write(line)
                    elif "fact" in told:
                        facts[told["step"]] = told["fact"]
                    else:
                        step = told["step"]
                        progress(f"checking: {step}")
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code == 0:
        return facts
    if watchdog.fired:
        last = f"did not end within {timeout:g} s"
    elif code < 0:
        last = f"crashed ({signal.Signals(-code).name})"
    where = f"all that it said: {log.name}" if log is not None else f"run {python} {engine.probe}"
    raise MissingEnvironmentError(f"{engine.name} cannot be used ({step}): {last}", hint=where)


class _Watchdog:
    """Kills a process that takes longer than it may."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        import threading

        self.fired = False
        self._process = process
        self._timer = threading.Timer(seconds, self._fire)

    def __enter__(self) -> None:
        self._timer.daemon = True
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _fire(self) -> None:
        self.fired = True
        self._process.kill()


def _told(line: str) -> dict[str, Any] | None:
    if not line.startswith('{"step": '):
        return None
    try:
        told = json.loads(line)
    except ValueError:
        return None  # a library wrote to stdout
    return told if isinstance(told, dict) else None


def _wrong_files(site: Path) -> Iterator[str]:
    """Yield every file that a distribution lists and that is not there, or of another size."""
    sizes: dict[str, dict[str, int]] = {}
    for listing in sorted(site.glob("*.dist-info/RECORD")):
        with listing.open(newline="", encoding="utf-8") as file:
            for name, digest, size in csv.reader(file):
                if not digest or not size:
                    continue  # made after the installation, or the list itself
                folder, _, base = name.rpartition("/")
                if folder not in sizes:
                    sizes[folder] = _sizes(site / folder)
                if sizes[folder].get(base) != int(size):
                    yield name


def _sizes(folder: Path) -> dict[str, int]:
    try:
        with os.scandir(folder) as scan:
            return {e.name: e.stat().st_size for e in scan if e.is_file()}
    except OSError:
        return {}


def _gone(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more} missing or altered"
