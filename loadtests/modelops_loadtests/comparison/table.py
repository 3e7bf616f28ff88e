"""A comparison at the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from modelops.report.terminal import grid, plain
from modelops_loadtests.comparison import wording
from modelops_loadtests.comparison.compare import METHODS
from modelops_loadtests.report.terminal import COLOURS, gates
from modelops_loadtests.report.wording import short

_SHOWN = {"better": "B better", "worse": "B worse", "none": "none shown", "unknown": "unknown"}
_STYLES = {**COLOURS, "muted": "dim"}


def table(result: Mapping[str, Any]) -> RenderableType:
    """Return the result of ``compare_files`` as a rich renderable."""
    tone, head = wording.headline(result)
    parts: list[RenderableType] = [plain(head, f"bold {COLOURS[tone]}")]
    parts += [plain(f"  {short(reason, 400)}", "bold red") for reason in result["reasons"]]
    parts += [plain(f"  note: {short(note, 400)}", "yellow") for note in result["warnings"]]
    parts += [Text(), *(_side(result, side) for side in ("a", "b")), Text()]
    if result["gates"]:
        parts += [gates(result), Text()]
    rows = grid(
        *(("", "left"), ("A", "right"), ("B", "right"), ("change", "right")),
        *(("interval", "left"), ("difference", "left")),
    )
    for column in rows.columns:
        # Where the terminal is narrow, the interval gives way: a cut name or unit says nothing.
        column.no_wrap = column.header != "interval"
    for found in result["rows"]:
        row = wording.row(found)
        rows.add_row(
            *(plain(row.name), plain(row.a), plain(row.b), plain(row.change, "bold")),
            *(plain(row.between, "dim"), plain(_SHOWN[found["shown"]], _STYLES[row.tone])),
        )
    parts += [rows, Text()]
    parts += [plain(f"{METHODS[result['method']]}. {wording.chance(result)}", "dim")]
    parts += [plain(f"page: {result['files']['report']}", "dim")]
    return Group(*parts)


def _side(result: Mapping[str, Any], side: str) -> Text:
    runs = result[side]
    requests = sum(run["requests"] for run in runs)
    names = ", ".join(short(run["name"], 80) for run in runs)
    return plain(f"{side.upper()}  {names}: {requests:,} requests")
