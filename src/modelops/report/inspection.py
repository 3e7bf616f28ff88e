"""What ``modelops inspect`` shows: a checkpoint's contents, or an artifact's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelops.artifact.manifest import Manifest
from modelops.checkpoint.inspection import Inspection
from modelops.report.table import parity_table, verdict_text
from modelops.report.terminal import grid, pairs, plain
from modelops.report.units import nbytes, thousands
from modelops.report.verdict import judge
from modelops.signature import Signature

_TENSORS = 20
_GLOBALS = 10


def checkpoint_view(inspection: Inspection) -> RenderableType:
    """Return what a checkpoint holds, whether it would be opened, and its first tensors."""
    parts: list[RenderableType] = [plain(inspection.name, "bold"), _safety(inspection), Text()]
    parts.append(
        pairs(
            [
                ("format", inspection.format),
                ("trainer", inspection.trainer),
                ("parameters", thousands(inspection.parameters)),
                ("size", nbytes(inspection.bytes)),
                ("dtypes", _counted(inspection.dtypes)),
                ("prefixes", _counted(inspection.prefixes)),
                ("state dicts", _state_dicts(inspection.containers)),
                *inspection.progress.items(),
                *(("note", note) for note in inspection.notes),
            ]
        )
    )
    if inspection.files:
        parts += [Text(), _files(inspection.files)]
    if inspection.tensors:
        parts += [Text(), *_tensors(inspection)]
    return Group(*parts)


def artifact_view(manifest: Manifest, version: int, path: Path) -> RenderableType:
    """Return an artifact's identity, signature, proof and files, as its manifest has them."""
    source, text = manifest.source, manifest.text
    trust = (
        "loading it runs code: only where its digest is trusted" if manifest.executable else None
    )
    return Group(
        plain(f"{manifest.name}, version {version}", "bold"),
        plain(path, "dim"),
        Text(),
        verdict_text(judge(manifest.parity, passed=manifest.parity.passed)),
        pairs(
            [
                ("digest", manifest.digest),
                ("format", manifest.format),
                ("task", manifest.task),
                ("precision", f"{manifest.precision.found} (asked: {manifest.precision.asked})"),
                ("opset", manifest.opset),
                ("trust", trust),
                ("text", f"up to {text.max_tokens} tokens" if text else None),
                ("pooling", text.pooling if text else None),
                ("labels", ", ".join(text.labels) if text and text.labels else None),
                ("source", f"{source.name} ({source.format}), sha256 {source.sha256}"),
                ("model factory", source.factory),
                ("hub revision", source.revision),
                ("made with", ", ".join(f"{k} {v}" for k, v in manifest.toolchain.items())),
                *(("note", note) for note in manifest.notes),
            ]
        ),
        Text(),
        signature_table(manifest.signature),
        Text(),
        parity_table(manifest.parity),
        Text(),
        _files({name: entry.size for name, entry in manifest.files.items()}),
    )


def signature_table(signature: Signature) -> Table:
    """Return inputs and outputs with their shapes, and the range of every dim."""
    table = grid(("", "left"), ("name", "left"), ("dtype", "left"), ("shape", "left"))
    for side, tensors in (("input", signature.inputs), ("output", signature.outputs)):
        for tensor in tensors:
            shape = "[" + ", ".join(str(d) for d in tensor.shape) + "]"
            table.add_row(side, plain(tensor.name), plain(tensor.dtype), plain(shape))
    for name, dim in signature.dims.items():
        table.add_row("dim", plain(name), "", f"{dim.min} to {dim.max}")
    return table


def _safety(inspection: Inspection) -> Text:
    if inspection.refused is not None:
        text = plain("✗ would be refused: ", "bold red").append_text(plain(inspection.refused))
    else:
        text = plain("✓ opens as data; nothing in it is run", "green")
    run = inspection.would_run
    for name in run[:_GLOBALS]:
        text.append("\n  a careless load would run ").append_text(plain(name, "red"))
    if len(run) > _GLOBALS:
        text.append(f"\n  … and {len(run) - _GLOBALS} more")
    return text


def _counted(counts: Mapping[str, int]) -> str | None:
    return ", ".join(f"{name} × {thousands(n)}" for name, n in counts.items()) or None


def _state_dicts(containers: Mapping[str, int]) -> str | None:
    """Name each state dict by its path of keys; at the root of the file that path is empty."""
    listed = (f"{key or 'top level'} ({thousands(n)} tensors)" for key, n in containers.items())
    return ", ".join(listed) or None


def _files(sizes: Mapping[str, int]) -> Table:
    table = grid(("file", "left"), ("size", "right"))
    for name, size in sizes.items():
        table.add_row(plain(name), nbytes(size))
    return table


def _tensors(inspection: Inspection) -> list[RenderableType]:
    table = grid(("tensor", "left"), ("dtype", "left"), ("shape", "left"))
    shown = inspection.tensors[:_TENSORS]
    for tensor in shown:
        shape = "[" + ", ".join(str(d) for d in tensor.shape) + "]"
        table.add_row(plain(tensor.name), plain(tensor.dtype), shape)
    rest = len(inspection.tensors) - len(shown)
    more = f"… and {thousands(rest)} more; --json lists all" if rest else ""
    return [table, *([Text(more, style="dim")] if more else [])]
