"""Installing a lock into an environment with pip: its words as progress, or as an error."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from modelops.environments.catalogue import Lock
from modelops.environments.children import our_pip, start_tied
from modelops.environments.lockfile import read_lock
from modelops.errors import IntegrityError, MissingEnvironmentError
from modelops.progress import Progress

_OPTIONS = (
    "--no-deps", "--require-hashes", "--only-binary", ":all:", "--no-compile", "--no-input",
    "--disable-pip-version-check", "--progress-bar", "off",
)  # fmt: skip
_TELL_SECONDS = 2.0
_UNREACHABLE = re.compile(
    r"connection broken|Temporary failure in name resolution|Name or service not known|"
    r"Failed to establish|Network is unreachable|Connection refused|timed out|SSLError|ProxyError|"
    r"certificate verify failed|40[137] Client Error|5\d\d Server Error"
)
_ABSENT = re.compile(r"No matching distribution found for (\S+)")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Errno 28")
_OTHER_BYTES = re.compile(r"DO NOT MATCH THE HASHES.*?^\s+(\S+) from", re.DOTALL | re.MULTILINE)
_FETCHED = re.compile(r"\s*(?:Downloading|Using cached|Processing) (\S+)(?: \((\d[\d.]* \w+)\))?")


class UnavailableError(MissingEnvironmentError):
    """No index that was asked has a build's packages, or none answers; another build may do."""


def install_lock(
    python: Path, lock: Lock, log: TextIO, temporary: Path, progress: Progress
) -> None:
    """Install what ``lock`` pins with the user's own pip settings, else from the lock's index.

    Raises:
        UnavailableError: it is not to be had here.
        IntegrityError: a package is not the one that was locked.
        MissingEnvironmentError: the disk is full, or pip failed otherwise.
    """
    try:
        _pip(python, lock, (), log, temporary, progress)
    except UnavailableError:
        if lock.index is None:
            raise
        progress(f"asking {lock.index}, because no index that pip is set to has it")
        _pip(python, lock, ("--extra-index-url", lock.index), log, temporary, progress)


def _pip(
    python: Path, lock: Lock, more: tuple[str, ...], log: TextIO, temporary: Path, tell: Progress
) -> None:
    arguments = ("install", *_OPTIONS, *more, "-r", str(lock.path))
    said = []
    pip = str(our_pip() or "pip")
    with start_tied(python, pip, *arguments, temporary=temporary) as process:
        try:
            for line in _told(process, read_lock(lock.path).packages, tell):
                said.append(line)
                log.write(line)
                log.flush()
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if code:
        raise _explain("".join(said), lock, Path(log.name))


def _told(process: subprocess.Popen[str], packages: int, tell: Progress) -> Iterator[str]:
    """Yield pip's lines, and say in passing how far it is."""
    fetched, last = 0, 0.0
    for line in process.stdout or ():
        yield line
        found = _FETCHED.match(line)
        if found:
            fetched += 1
            name = re.split(r"-\d", found[1].rsplit("/", 1)[-1])[0]
            size = f", {found[2]}" if found[2] else ""
            large = "MB" in size or "GB" in size
            if large or time.monotonic() - last > _TELL_SECONDS or fetched == packages:
                last = time.monotonic()
                tell(f"fetching packages: {fetched} of {packages} ({name}{size})")
        elif line.startswith("Installing collected packages"):
            tell(f"unpacking {packages} packages")
        elif "Retrying" in line and time.monotonic() - last > _TELL_SECONDS:
            last = time.monotonic()
            tell("a package index does not answer; pip tries again")


def _explain(said: str, lock: Lock, log: Path) -> MissingEnvironmentError | IntegrityError:
    where = f"pip's own words: {log}"
    if _FULL.search(said):
        free = shutil.disk_usage(log.parent).free
        return MissingEnvironmentError(
            f"the disk of {log.parent} is full ({free / 1e9:.1f} GB free); nothing half-made stays",
            hint="free some space, or choose another disk: --engines-dir DIR",
        )
    if "DO NOT MATCH THE HASHES" in said:
        found = _OTHER_BYTES.search(said)
        what = found[1] if found else "a package"
        return IntegrityError(
            f"{what} is not the file that was locked: it was altered, or replaced by its index",
            hint=f"look at where your pip finds it (pip config list); {where}",
        )
    absent = _ABSENT.search(said)
    if absent and _UNREACHABLE.search(said):
        return UnavailableError(
            f"no package index could be reached for {absent[1]}",
            hint=f"check the network, the proxy and `pip config list`, then run again; {where}",
        )
    if absent:
        return UnavailableError(
            f"no index that pip is set to has {absent[1]}",
            hint=f"point pip at an index that has it (pip config set global.index-url …); {where}",
        )
    errors = [line for line in said.splitlines() if line.startswith("ERROR")]
    why = (errors or said.strip().splitlines() or ["it said nothing"])[-1].removeprefix("ERROR: ")
    return MissingEnvironmentError(f"pip could not install {lock.path.name}: {why}", hint=where)
