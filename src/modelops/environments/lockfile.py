"""Reading a lock: what it pins, for which machine, and what tells it from another."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from modelops.environments.catalogue import Build

# Raised when what is done to an environment after its packages changes.
_RECIPE = 1
_PIN = re.compile(r"^([A-Za-z0-9][\w.-]*)==", re.MULTILINE)


@dataclass(frozen=True)
class LockFacts:
    """What the head of a lock says; ``download`` is in bytes."""

    system: str
    machine: str
    pythons: tuple[str, ...]
    glibc: tuple[int, int]
    download: int
    packages: int


def read_lock(path: Path) -> LockFacts:
    """Return the facts at the head of the lock at ``path``."""
    text = path.read_text(encoding="utf-8")
    head = dict(re.findall(r"^# (\w+): (.*)$", text, re.MULTILINE))
    system, machine = head["platform"].split()
    major, minor = head["glibc"].split(".")
    return LockFacts(
        system=system,
        machine=machine,
        pythons=tuple(head["pythons"].split()),
        glibc=(int(major), int(minor)),
        download=int(head["download"]),
        packages=len(_PIN.findall(text)),
    )


def lock_digest(build: Build) -> str:
    """Return what changes whenever an environment of ``build`` would come out otherwise."""
    digest = hashlib.sha256(f"{_RECIPE} {build.name} {build.version}".encode())
    for lock in build.locks:
        digest.update(lock.path.read_bytes())
    return digest.hexdigest()
