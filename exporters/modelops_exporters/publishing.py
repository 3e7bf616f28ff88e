"""What every export ends with: its report, and a published version or a refusal."""

from __future__ import annotations

import shutil
from pathlib import Path

from modelops.artifact import MANIFEST, Artifact, Store, hash_files, runs_code, trust
from modelops.artifact.integrity import render
from modelops.artifact.manifest import Manifest, Role, check_name
from modelops.errors import ParityError, UsageError
from modelops.parity.samples import SAMPLES, TEXT_SAMPLES
from modelops.progress import Progress
from modelops.report.conversion import ConversionReport
from modelops.report.export import ExportReport, PromptEvidence, to_html, to_json
from modelops.requests import ExportRequest, ExportResult
from modelops_exporters.clock import StepClock

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


def _file_sizes(folder: Path) -> dict[str, int]:
    """Return the bytes of every file under ``folder``."""
    return {
        p.relative_to(folder).as_posix(): p.stat().st_size
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }


def role(path: str) -> Role:
    """Return whether a file decides an answer, or only proves one."""
    return "evidence" if path in _EVIDENCE else "model"


def conclude(
    request: ExportRequest,
    draft: Manifest,
    clock: StepClock,
    failures: tuple[str, ...],
    store: Store,
    folder: Path,
    progress: Progress,
    *,
    source_bytes: int,
    prompts: tuple[PromptEvidence, ...] = (),
    conversion: ConversionReport | None = None,
) -> ExportResult:
    """Write the report beside what is in ``folder``, and publish it where it is right.

    Raises:
        ParityError: it is not right; it is kept where that was asked for.
    """
    report = _report(
        request,
        draft,
        clock,
        failures,
        folder,
        source_bytes=source_bytes,
        prompts=prompts,
        conversion=conversion,
    )
    (folder / REPORT_HTML).write_text(to_html(report), encoding="utf-8")
    (folder / REPORT_JSON).write_text(to_json(report), encoding="utf-8")
    manifest = draft.model_copy(update={"files": hash_files(folder, role)}).sealed()
    if not report.passed:
        raise _refused(request, manifest, folder, failures)
    progress("publishing")
    if runs_code(manifest):
        # First, so that a trust store that cannot be written leaves nothing published.
        trust(manifest.digest, manifest.name, "export")
    return _result(store.publish(folder, manifest), report)


def _report(
    request: ExportRequest,
    draft: Manifest,
    clock: StepClock,
    failures: tuple[str, ...],
    folder: Path,
    *,
    source_bytes: int,
    prompts: tuple[PromptEvidence, ...],
    conversion: ConversionReport | None,
) -> ExportReport:
    """Return the account of one export, right or not; ``folder`` is what was written."""
    output = request.output
    return ExportReport(
        name=draft.name,
        format=draft.format,
        task=draft.task,
        source=draft.source,
        signature=draft.signature,
        precision=draft.precision,
        opset=draft.opset,
        text=draft.text,
        parity=draft.parity,
        prompts=prompts,
        conversion=conversion,
        notes=draft.notes,
        chain=tuple(clock.steps),
        sizes=_file_sizes(folder),
        source_bytes=source_bytes,
        toolchain=draft.toolchain,
        command=request.command,
        location=str(output) if output is not None and not output.is_absolute() else None,
        digest=draft.computed_digest(),
        passed=draft.parity.passed and not failures,
        failures=failures,
    )


def _refused(
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


def _result(artifact: Artifact, report: ExportReport) -> ExportResult:
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
