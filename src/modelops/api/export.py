"""Exporting a checkpoint, and writing the recipe for one that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops import registry
from modelops.progress import Progress, silent
from modelops.requests import ExportRequest, ExportResult

__all__ = ["ExportRequest", "ExportResult", "export", "table", "write_recipe"]


def export(request: ExportRequest, progress: Progress = silent) -> ExportResult:
    """Load safely, export, verify and publish; or publish nothing.

    Raises:
        UsageError: what was asked cannot be meant.
        InputError: the source is bad, unsafe, or does not fit the model or the target.
        VerificationError: the artifact is not what was asked, or not what eager computes.
        MissingEnvironmentError: the extra ``export`` is not installed.
    """
    run = registry.load("modelops_exporters.pipeline:run", extra="export")
    result: ExportResult = run(request, progress)
    return result


def write_recipe(source: str, path: Path, progress: Progress = silent) -> str:
    """Look at a checkpoint and write a recipe to edit; return its text.

    Raises:
        UsageError: ``path`` is there already.
        InputError: the source cannot be read.
    """
    write = registry.load("modelops_exporters.recipe_draft:write", extra="export")
    text: str = write(source, path, progress)
    return text


def table(result: ExportResult) -> Any:
    """Return the published artifact's report as a rich renderable for a terminal."""
    from modelops.report.export import ExportReport
    from modelops.report.table import export_table

    text = (result.path / "report.json").read_text(encoding="utf-8")
    return export_table(ExportReport.model_validate_json(text))
