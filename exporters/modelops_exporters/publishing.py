"""What every export ends with: a name, a refusal that can be kept for study, a result."""

from __future__ import annotations

import shutil
from pathlib import Path

from modelops.artifact import MANIFEST, Artifact
from modelops.artifact.integrity import render
from modelops.artifact.manifest import Manifest, Role, check_name
from modelops.errors import ParityError, UsageError
from modelops.parity.samples import SAMPLES, TEXT_SAMPLES
from modelops.report.export import ExportReport
from modelops.requests import ExportRequest, ExportResult

REPORT_HTML, REPORT_JSON = "report.html", "report.json"
_EVIDENCE = {SAMPLES, TEXT_SAMPLES, REPORT_HTML, REPORT_JSON}


def artifact_name(request: ExportRequest, default: str, root: Path) -> str:
    """Return the artifact's name: asked for, or its folder's, or its source's.

    Raises:
        UsageError: that is no name.
    """
    name = request.name or (root.name if request.output is not None else default)
    try:
        return check_name(name)
    except ValueError as error:
        raise UsageError(
            str(error), hint="name the artifact with --name, or its folder with -o"
        ) from error


def file_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of every file under ``folder``."""
    return {
        p.relative_to(folder).as_posix(): p.stat().st_size
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def role(path: str) -> Role:
    """Return whether a file decides an answer, or only proves one."""
    return "evidence" if path in _EVIDENCE else "model"


def refused(
    request: ExportRequest, manifest: Manifest, folder: Path, failures: tuple[str, ...]
) -> ParityError:
    """Return the error of an export that is not right, which is kept where that was asked for."""
    wrong = [
        f"{p.label} ({', '.join(f'{k}={v}' for k, v in p.dims.items())}), "
        f"output {o.output!r}: {o.why}"
        for p in manifest.parity.points
        for o in p.outputs
        if not o.passed
    ]
    reasons = [*failures, *wrong]
    checked = len(manifest.parity.points)
    message = f"the {manifest.format} artifact is not right, and was not published: {reasons[0]}"
    if len(reasons) > 1:
        message += f" (and {len(reasons) - 1} more; {checked} points were checked)"
    hint = "--keep-failed DIR keeps it for study, with its report"
    if request.keep_failed is not None:
        kept = _keep(request.keep_failed, folder, manifest)
        hint = (
            f"kept for study, marked as failed: {kept}"
            if kept is not None
            else f"it could not be kept: {request.keep_failed} cannot be written"
        )
    return ParityError(message, hint=hint)


def result_of(artifact: Artifact, report: ExportReport) -> ExportResult:
    """Return what the caller of an export gets back."""
    manifest = artifact.manifest
    return ExportResult(
        path=artifact.path,
        version=artifact.version,
        name=manifest.name,
        format=manifest.format,
        digest=manifest.digest,
        parity=manifest.parity,
        seconds=report.total_seconds,
        report=artifact.path / REPORT_HTML,
        notes=manifest.notes,
    )


def _keep(target: Path, folder: Path, manifest: Manifest) -> Path | None:
    """Copy what failed into a new folder of ``target``; None where it cannot be written."""
    number = 1
    while (kept := target / f"failed-{number}").exists():
        number += 1
    try:
        shutil.copytree(folder, kept)
        (kept / MANIFEST).write_bytes(render(manifest))
    except OSError:
        shutil.rmtree(kept, ignore_errors=True)
        return None
    return kept
