"""What an export would do: source, dims, precision and the chain; nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops.checkpoint import open_checkpoint
from modelops.progress import Progress
from modelops.protocols import Exporter, Planning, TextExporter
from modelops.registry import resolve
from modelops.requests import ExportPlan, ExportRequest
from modelops_exporters.pipeline import prepare_source, refuse_what_the_target_has_not
from modelops_exporters.precision import precision_of
from modelops_exporters.publishing import artifact_name
from modelops_exporters.tracing import trace
from modelops_exporters.user_space import code_folders, user_space


def plan(request: ExportRequest, progress: Progress) -> ExportPlan:
    """Return what ``pipeline.run`` would do with ``request``.

    Raises:
        UsageError: what was asked cannot be meant.
        InputError: the source is bad, unsafe, or does not fit the model.
    """
    with user_space(*code_folders(request)):
        return _plan(request, progress)


def _plan(request: ExportRequest, progress: Progress) -> ExportPlan:
    target = resolve("exporters", request.target)()
    refuse_what_the_target_has_not(request, text=isinstance(target, TextExporter))
    checkpoint = open_checkpoint(request.source, weights_key=request.weights_key, progress=progress)
    chain = [f"load {checkpoint.format}"]
    if isinstance(target, TextExporter):
        return ExportPlan(
            source=checkpoint.name,
            source_format=checkpoint.format,
            target=request.target,
            format=target.format,
            output=str(request.output or Path("artifacts")),
            chain=(*chain, f"write {target.format}", "prove parity", "publish"),
        )
    exporter: Exporter = target
    prepared = prepare_source(checkpoint, request, progress)
    root = request.output or Path("artifacts") / prepared.default_name
    artifact_name(request, prepared.default_name, root)
    chain += ["build the model", "trace by torch.export", f"write {exporter.format}"]
    if request.precision is not None:
        chain.append(f"convert to {request.precision}")
    details: dict[str, Any] = {}
    missing: tuple[str, ...] = ()
    if isinstance(exporter, Planning):
        progress("tracing")
        exported = trace(prepared, seed=request.seed).exported
        given = {**request.options, "opset": request.opset}
        details = exporter.plan(exported, given, progress)
        missing = tuple(exporter.missing())
    found = precision_of(prepared.model)
    return ExportPlan(
        source=checkpoint.name,
        source_format=checkpoint.format,
        target=request.target,
        format=exporter.format,
        output=str(root),
        precision=request.precision or found,
        inputs=prepared.inputs,
        dims=dict(prepared.dims),
        chain=(*chain, "check", "prove parity", "publish"),
        details=details,
        missing=missing,
    )
