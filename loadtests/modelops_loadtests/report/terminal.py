"""The result at the terminal: the verdict, the objectives, the key figures, where the rest is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from modelops.report.terminal import grid, pairs, plain
from modelops.report.units import number
from modelops_loadtests.report import facts, wording
from modelops_loadtests.report.wording import load_of, load_unit

COLOURS = {"good": "green", "bad": "red", "warn": "yellow"}


def table(result: Mapping[str, Any]) -> RenderableType:
    """Return the result as a rich renderable."""
    tone = wording.TONES[result["verdict"]]
    head = f"{wording.MARKS[tone]} {wording.headline(result)}"
    parts: list[RenderableType] = [plain(head, f"bold {COLOURS[tone]}")]
    parts += [plain(f"  {wording.sentence(reason)}") for reason in result["reasons"][:10]]
    parts.append(Text())
    if result["gates"]:
        parts += [gates(result), Text()]
    parts.append(
        pairs((tile.label, _figure(tile.value, tile.small)) for tile in facts.tiles(result))
    )
    parts += _sweep(result)
    if result["errors"]:
        parts += [Text(), _errors(result)]
    parts += [Text(), plain(f"report: {result['files']['report']}", "dim")]
    return Group(*parts)


def gates(result: Mapping[str, Any]) -> RenderableType:
    """Return a line for each objective."""
    rows = grid(
        *(("", "left"), ("objective", "left"), ("asked", "right"), ("measured", "right")),
        *(("interval", "left"), ("samples", "right")),
    )
    for gate in result["gates"]:
        colour = COLOURS[wording.TONES[gate["verdict"]]]
        rows.add_row(
            Text(gate["verdict"], style=colour),
            plain(wording.metric(gate["metric"])),
            plain(wording.bound(gate)),
            plain(wording.amount(gate["metric"], gate["value"]), "bold"),
            plain(wording.interval(gate) or "", "dim"),
            plain(f"{gate['samples']:,}"),
        )
    return rows


def _figure(value: str, small: str) -> Text:
    return plain(value, "bold").append_text(plain(f"  {small}", "dim"))


def _sweep(result: Mapping[str, Any]) -> list[RenderableType]:
    if not result.get("sweep"):
        return []
    rows = grid(
        *(("load", "right"), ("completed/s", "right"), ("TTFT p95", "right")),
        *(("end to end p95", "right"), ("errors", "right"), ("", "left")),
    )
    knee, highest = load_of(result.get("knee")), load_of(result.get("highest_within_slo"))
    for row in sorted(result["sweep"], key=lambda r: float(r["asked"])):
        figures, asked = row["summary"], float(row["asked"])
        marks = ["the knee"] if asked == knee else []
        marks += ["the highest load within every objective"] if asked == highest else []
        tone = COLOURS[wording.TONES.get(row["verdict"], "warn")]
        rows.add_row(
            plain(f"{asked:g}"),
            plain(number(figures.get("qps"))),
            plain(wording.ms((figures.get("ttft_ms") or {}).get("p95"))),
            plain(wording.ms((figures.get("e2e_ms") or {}).get("p95"))),
            plain(wording.share(figures.get("error_rate"))),
            Text(row["verdict"], style=tone).append_text(plain("  " + ", ".join(marks), "dim")),
        )
    return [Text(), plain(f"load in {load_unit(result['spec'])}", "dim"), rows]


def _errors(result: Mapping[str, Any]) -> RenderableType:
    rows = grid(("error", "left"), ("requests", "right"), ("first example", "left"))
    for row in result["errors"][:5]:
        rows.add_row(
            plain(wording.short(row["kind"], 60), "red"),
            plain(f"{row['count']:,}"),
            plain(wording.short(row["example"] or "", 200)),
        )
    return rows
