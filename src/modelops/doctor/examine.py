"""The whole examination, in the order in which it is told."""

from __future__ import annotations

from modelops.artifact.trust_store import store_path, trusted
from modelops.doctor.engines import engine_findings
from modelops.doctor.findings import Diagnosis, Finding
from modelops.doctor.machine import look, machine_findings
from modelops.doctor.packages import package_findings
from modelops.errors import ModelopsError
from modelops.progress import Progress, silent


def examine(progress: Progress = silent) -> Diagnosis:
    """Look at the machine, the extras, what is in their way, the engines, and the trust store.

    Libraries are imported and sessions made in child processes only; it takes some seconds.
    """
    progress("looking at the machine")
    machine = look()
    findings = [*machine_findings(machine)]
    progress("importing what is installed, in a process of its own")
    findings += package_findings(machine)
    findings += engine_findings()
    findings.append(_trust())
    return Diagnosis(machine=machine, findings=tuple(findings))


def _trust() -> Finding:
    try:
        value, status, fix = f"{len(trusted())} digests in {store_path()}", "ok", None
    except ModelopsError as error:
        value, status, fix = error.message, "warning", error.hint
    return Finding.model_validate(
        {"area": "trust", "name": "store", "status": status, "value": value, "fix": fix}
    )
