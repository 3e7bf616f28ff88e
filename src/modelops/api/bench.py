"""Measuring artifacts beside PyTorch."""

from __future__ import annotations

from typing import Any

from modelops import registry
from modelops.benchmark import BenchRequest, BenchResult
from modelops.progress import Progress, silent

__all__ = ["BenchRequest", "BenchResult", "bench", "view"]


def bench(request: BenchRequest, progress: Progress = silent) -> BenchResult:
    """Measure artifacts, eager and compiled PyTorch side by side in one run.

    Raises:
        UsageError: sizes or source do not fit the artifacts.
        MissingEnvironmentError: the extra ``export`` or a compiler is missing.
    """
    run = registry.load("modelops_exporters.bench:run", extra="export")
    result: BenchResult = run(request, progress)
    return result


def view(result: BenchResult) -> Any:
    """Return the table as a rich renderable for a terminal."""
    from rich.table import Table

    table = Table(
        title=f"{result.threads} threads; "
        + ", ".join(f"{name} {number}" for name, number in result.versions.items()),
        title_style="dim",
    )
    for column in ("sizes", "contender"):
        table.add_column(column)
    for column in ("p50 ms", "p95 ms", "items/s", "speed", "cosine"):
        table.add_column(column, justify="right")
    last = None
    for row in result.rows:
        sizes = " ".join(f"{k}={v}" for k, v in row.dims.items())
        if last not in (None, sizes):
            table.add_section()
        table.add_row(
            sizes if sizes != last else "",
            row.contender,
            f"{row.p50_ms:.2f}",
            f"{row.p95_ms:.2f}",
            f"{row.items_per_second:,.1f}",
            f"{row.speedup:.2f} ×",
            "–" if row.cosine is None else f"{row.cosine:.6f}",
        )
        last = sizes
    return table
