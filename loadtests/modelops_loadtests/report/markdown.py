"""The summary for pipelines: short, and nothing in it can end a table, a page or a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from modelops_loadtests.report import facts, wording
from modelops_loadtests.report.wording import load_of, load_unit

_ICONS = {"good": "✅", "bad": "❌", "warn": "⚠️"}
_MOST_ROWS = 20


def markdown(result: Mapping[str, Any]) -> str:
    """Return a page of Markdown: the verdict, each gate, the key figures, where the rest is."""
    tone = wording.TONES[result["verdict"]]
    spec = result["spec"]
    parts = [
        f"## {_ICONS[tone]} {_plain(wording.headline(result))}\n",
        f"Load test of {_code(wording.model(result))}: {_plain(spec['scenario'])}, "
        f"{_plain(wording.load(spec))}, {result['window']['seconds']:g} s measured.\n",
    ]
    reasons = result["reasons"][:_MOST_ROWS]
    parts += [f"- {_plain(wording.sentence(reason))}" for reason in reasons]
    if result["gates"]:
        rows = [
            (
                f"{_ICONS[wording.TONES[gate['verdict']]]} {gate['verdict']}",
                wording.metric(gate["metric"]),
                wording.bound(gate),
                wording.amount(gate["metric"], gate["value"]),
                wording.interval(gate) or "",
                _samples(gate),
            )
            for gate in result["gates"]
        ]
        heads = ("", "objective", "asked", "measured", "interval", "samples")
        parts += ["", *_table(heads, rows)]
    tiles = [(tile.label, tile.value, tile.small) for tile in facts.tiles(result)]
    parts += ["", *_table(("figure", "", ""), tiles)]
    parts += _sweep(result)
    if result["errors"]:
        parts += [
            "",
            *_table(
                ("error", "requests", "first example"),
                [
                    (
                        _code(wording.short(row["kind"], 60)),
                        f"{row['count']:,}",
                        _code(wording.short(row["example"] or "", 160)),
                    )
                    for row in result["errors"][:_MOST_ROWS]
                ],
                plain=False,
            ),
        ]
    files = result["files"]
    parts += [
        "",
        _plain(facts.calibration(result)),
        "",
        f"The page {_code(files['report'])} has the plots, {_code(files['json'])} every figure.",
    ]
    return "\n".join(parts) + "\n"


def _samples(gate: Mapping[str, Any]) -> str:
    needed = gate.get("samples_needed")
    told = f"{gate['samples']:,}"
    return told if needed is None or needed <= gate["samples"] else f"{told} of {needed:,}"


def _sweep(result: Mapping[str, Any]) -> list[str]:
    if not result.get("sweep"):
        return []
    knee, highest = load_of(result.get("knee")), load_of(result.get("highest_within_slo"))
    words = []
    if highest is not None:
        words.append(f"Every objective holds up to **{highest:g} {load_unit(result['spec'])}**.")
    if knee is not None:
        words.append(f"The knee is at **{knee:g} {load_unit(result['spec'])}**.")
    return ["", " ".join(words)] if words else []


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]], *, plain: bool = True) -> list[str]:
    names = list(heads)
    lines = [f"| {' | '.join(names)} |", f"|{' --- |' * len(names)}"]
    for row in rows:
        cells = [_plain(cell) if plain else cell for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


_SPECIAL = frozenset("\\`*_{}[]<>#|~@&!$:")


def _plain(text: str) -> str:
    """Return text in which nothing means anything: no markup, no mention, no address."""
    one = " ".join(str(text).split())
    return "".join(f"&#{ord(c)};" if c in _SPECIAL else c for c in one)


def _code(text: str) -> str:
    """Return text as code; a backtick in it becomes a quote, so that it cannot end there."""
    one = " ".join(str(text).split()).replace("`", "'").replace("|", "¦")
    return f"`{one}`" if one else ""
