"""The engines' environments: which are there, and the command that mends each."""

from __future__ import annotations

from collections.abc import Iterator

from modelops.doctor.findings import Finding, Status
from modelops.environments import EngineStatus, engine_statuses

_STATUS: dict[str, Status] = {
    "ready": "ok",
    "outdated": "warning",
    "half-made": "warning",
    "broken": "broken",
    "absent": "absent",
}


def engine_findings() -> Iterator[Finding]:
    """Yield how each engine's environment is; nothing in one is run."""
    for status in engine_statuses():
        yield Finding(
            area="engine",
            name=status.engine,
            status=_STATUS[status.state],
            value=_value(status),
            fix=status.fix,
        )


def _value(status: EngineStatus) -> str:
    if status.state == "absent":
        return f"not installed: {status.about}"
    told = [status.problem] if status.problem else []
    if status.version is not None:
        told.append(f"{status.version}, build {status.build}, on Python {status.python_version}")
        told.append(f"in {status.folder}")
    return "; ".join([*told, *status.notes])
