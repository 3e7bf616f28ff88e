"""Exporting a checkpoint, and writing the recipe for one that needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops import registry
from modelops.progress import Progress, silent
from modelops.requests import ExportPlan, ExportRequest, ExportResult

__all__ = [
    "ExportPlan",
    "ExportRequest",
    "ExportResult",
    "export",
    "plan",
    "plan_lines",
    "table",
    "write_recipe",
]


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


def plan(request: ExportRequest, progress: Progress = silent) -> ExportPlan:
    """Say what ``export`` would do with ``request``; nothing is written.

    Raises:
        UsageError: what was asked cannot be meant.
        InputError: the source is bad, unsafe, or does not fit the model.
        MissingEnvironmentError: the extra ``export`` is not installed.
    """
    run = registry.load("modelops_exporters.planning:plan", extra="export")
    result: ExportPlan = run(request, progress)
    return result


def plan_lines(found: ExportPlan) -> Any:
    """Return the plan as a rich renderable for a terminal."""
    from modelops.report.terminal import plain

    rows = [
        ("would export", f"{found.source} ({found.source_format}) to {found.target}"),
        ("into", found.output),
        ("precision", found.precision or "the source's"),
        *(("input", str(spec)) for spec in found.inputs),
        *(("dim", f"{name}={d.min}..{d.max}") for name, d in found.dims.items()),
        ("chain", " → ".join(found.chain)),
        *((name, str(value)) for name, value in found.details.items()),
        *(("missing here", what) for what in found.missing),
    ]
    width = max(len(name) for name, _ in rows)
    return plain("\n".join(f"{name:<{width}}  {value}" for name, value in rows))


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
