"""The export report at the terminal: the verdict, parity compactly, time, size, what is next."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelops.artifact.manifest import Parity, ParityPoint
from modelops.report.export import ExportReport, next_commands
from modelops.report.names import printable
from modelops.report.terminal import grid, pairs, plain
from modelops.report.units import nbytes, number, seconds
from modelops.report.verdict import Verdict, error_of, shared_dims, sizes_text

_TONE = {"good": "bold green", "bad": "bold red"}


def export_table(report: ExportReport) -> RenderableType:
    """Return the whole report for a person at a terminal."""
    share = report.parity_share
    steps = ", ".join(f"{step.name} {seconds(step.seconds)}" for step in report.chain)
    found, asked = report.precision.found, report.precision.asked
    parts: list[RenderableType] = [
        verdict_text(report.verdict),
        parity_table(report.parity),
        Text(),
        pairs(
            [
                ("precision", found if found == asked else f"{found} (asked: {asked})"),
                ("opset", report.opset),
                ("size", _sizes(report)),
                ("time", f"{seconds(report.total_seconds)}: {steps}"),
                ("parity's share", None if share is None else f"{share:.0%}"),
                *(("note", note) for note in report.notes),
            ]
        ),
    ]
    following = next_commands(report)
    if following:
        parts += [Text("\nnext", style="dim"), *(plain(f"  {c}") for c, _ in following)]
    return Group(*parts)


def verdict_text(verdict: Verdict) -> Text:
    """Return the headline in its colour, and its details below."""
    mark = "✓ " if verdict.tone == "good" else "✗ "
    text = plain(mark + verdict.headline, _TONE[verdict.tone])
    for line in verdict.details:
        text.append("\n  ").append_text(plain(line))
    return text.append("\n")


def parity_table(parity: Parity) -> RenderableType:
    """Return one line for each checked point, and for each output where there are several."""
    dims = shared_dims(parity)
    several = any(len(point.outputs) > 1 for point in parity.points)
    table = grid(
        ("", "left"),
        ("point", "left"),
        (" × ".join(map(printable, dims)) or "sizes", "left"),
        ("inputs", "left"),
        *([("output", "left")] if several else []),
        ("max rel", "right"),
        ("cosine", "right"),
    )
    for point in parity.points:
        _add(table, point, sizes_text(point, dims), several)
    parts: list[RenderableType] = [table] if parity.points else []
    parts += [Text("✓ ", style="green").append_text(plain(check)) for check in parity.checks]
    return Group(*parts)


def _add(table: Table, point: ParityPoint, sizes: str, several: bool) -> None:
    inputs = f"{point.inputs}, padded" if point.padded else point.inputs
    for index, output in enumerate(point.outputs):
        table.add_row(
            Text("✓", style="green") if output.passed else Text("✗", style="bold red"),
            *(plain(text if index == 0 else "") for text in (point.label, sizes, inputs)),
            *([plain(output.output)] if several else []),
            number(error_of(output)),
            "–" if output.cosine is None else f"{output.cosine:.7f}",
        )
        if output.why:
            table.add_row("", "", plain(output.why, "" if output.passed else "red"))


def _sizes(report: ExportReport) -> str:
    written = nbytes(sum(report.sizes.values()))
    return f"{written} in {len(report.sizes)} files, from {nbytes(report.source_bytes)} of weights"
