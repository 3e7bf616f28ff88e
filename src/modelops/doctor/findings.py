"""What the doctor says: findings, each with its remedy."""

from __future__ import annotations

from typing import Literal

from modelops.signature import Frozen

Status = Literal["ok", "absent", "warning", "broken"]


class Finding(Frozen):
    """One thing that was looked at; ``fix`` is the command that mends it."""

    area: str
    name: str
    status: Status
    value: str
    fix: str | None = None


class Machine(Frozen):
    """What there is to run on; memory in bytes, cores as a scheduler would grant them."""

    os: str
    arch: str
    python: str
    cores: float
    memory_bytes: int
    cpu_flags: tuple[str, ...]
    gpus: tuple[str, ...] = ()


class Diagnosis(Frozen):
    """Everything found. ``usable`` is false where an installed extra is broken."""

    schema_version: Literal[1] = 1
    machine: Machine
    findings: tuple[Finding, ...]

    @property
    def usable(self) -> bool:
        """Whether nothing that is installed is broken."""
        return all(f.status != "broken" for f in self.findings)
