"""The report as one HTML page that opens without a network, with Markdown beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from modelops.report.page import render
from modelops.report.units import number
from modelops_loadtests.gates.regressions import DIFFERENCE, RATIO
from modelops_loadtests.report import facts, plots, wording
from modelops_loadtests.report.markdown import markdown
from modelops_loadtests.samples import SampleTable

_GAUGE, _FARTHEST = 1.5, 4.0
"""How far a gate's picture reaches, in its bound: at least and at most."""


def write(result: Mapping[str, Any], samples: SampleTable, folder: Path) -> None:
    """Write ``report.html`` and ``report.md`` for ``result``, the contents of report.json.

    ``samples`` are all of the run, those of the warm-up included.
    """
    (folder / "report.html").write_text(page(result, samples), encoding="utf-8")
    (folder / "report.md").write_text(markdown(result), encoding="utf-8")


def page(result: Mapping[str, Any], samples: SampleTable) -> str:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

    groups = plots.groups(result, samples)
    drawn = [
        {"id": plot.id, "data": plot.data, "layout": plot.layout}
        for _, found in groups
        for plot in found
    ]
    tone = wording.TONES[result["verdict"]]
    return render(
        "loadtest.html.j2",
        package="modelops_loadtests.report",
        result=result,
        words=wording,
        tone=tone,
        headline=f"{wording.MARKS[tone]} {wording.headline(result)}",
        reasons=[wording.sentence(reason) for reason in result["reasons"][:20]],
        model=wording.model(result),
        gates=[_gate(gate) for gate in result["gates"]],
        tiles=facts.tiles(result),
        latencies=facts.latencies(result),
        statistics=facts.STATISTICS,
        health=facts.health(result),
        calibration=facts.calibration(result),
        stamps=facts.stamps(result),
        errors=[_error(row) for row in result["errors"][:50]],
        stages=_stages(result),
        groups=groups,
        silence=facts.silence(result),
        environment=_environment(result["environment"]),
        command=wording.short(result["command"], 8000),
        plots_json=script_json(drawn),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own source, not data
    )


def script_json(value: Any) -> Markup:
    """Return JSON that no text in it can end the script element of."""
    text = orjson.dumps(value).decode()
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped


def _gate(gate: Mapping[str, Any]) -> dict[str, Any]:
    found = gate.get("interval") or {}
    tone = wording.TONES[gate["verdict"]]
    needed = gate.get("samples_needed")
    samples = f"{gate['samples']:,}"
    if needed is not None and needed > gate["samples"]:
        samples += f" of {needed:,} needed"
    confidence = found.get("confidence")
    return {
        "tone": tone,
        "verdict": f"{wording.MARKS[tone]} {gate['verdict']}",
        "name": wording.metric(gate["metric"]),
        "metric": gate["metric"],
        "bound": wording.bound(gate),
        "value": wording.amount(gate["metric"], gate["value"]),
        "interval": wording.interval(gate),
        "confidence": None if confidence is None else f"{confidence:.0%}",
        "samples": samples,
        "detail": wording.short(gate["detail"]),
        "gauge": _gauge(gate, found),
    }


def _gauge(gate: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, float] | None:
    """Return where bound, value and interval lie on a line of 100 %; None without a value."""
    bound, value = float(gate["bound"]), gate["value"]
    if value is None:
        return None
    start, end = _reach(gate["metric"], bound, max(float(value), found.get("high") or 0.0))

    def place(at: float | None, nothing: float) -> float:
        if at is None:
            return nothing
        return round(100 * min(1.0, max(0.0, (at - start) / (end - start))), 2)

    at = place(value, 0.0)
    low, high = (
        (place(found.get("low"), 0.0), place(found.get("high"), 100.0)) if found else (at, at)
    )
    return {"bound": place(bound, 0.0), "value": at, "low": low, "width": max(high - low, 0.0)}


def _reach(metric: str, bound: float, most: float) -> tuple[float, float]:
    """Return the ends of a gate's picture: from nothing, or as far on both sides of no change."""
    for ending, still in ((RATIO, 1.0), (DIFFERENCE, 0.0)):
        if metric.endswith(ending):
            away = 3 * max(abs(bound - still), 0.01)
            return still - away, still + away
    if bound <= 0:
        return 0.0, _GAUGE * max(most, 1e-9)
    return 0.0, min(max(_GAUGE * bound, 1.1 * most), _FARTHEST * bound)


def _error(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "kind": wording.short(row["kind"], 80),
        "count": row["count"],
        "first_s": row["first_s"],
        "example": wording.short(row["example"] or "", 400),
    }


def _stages(result: Mapping[str, Any]) -> dict[str, Any] | None:
    rows = result.get("sweep")
    if not rows:
        return None
    knee = wording.load_of(result.get("knee"))
    highest = wording.load_of(result.get("highest_within_slo"))
    why = wording.short((result.get("knee") or {}).get("why") or "").rstrip(".")
    stages = []
    for row in sorted(rows, key=lambda r: float(r["asked"])):
        figures, asked = row["summary"], float(row["asked"])
        tone = wording.TONES.get(row["verdict"], "warn")
        stages.append(
            {
                "asked": f"{asked:g}",
                "qps": number(figures.get("qps")),
                "ttft": wording.ms((figures.get("ttft_ms") or {}).get("p95")),
                "e2e": wording.ms((figures.get("e2e_ms") or {}).get("p95")),
                "tokens": number(figures.get("output_tokens_per_s")),
                "errors": wording.share(figures.get("error_rate")),
                "tone": tone,
                "verdict": f"{wording.MARKS[tone]} {row['verdict']}",
                "is_head": row["stage"] == result["window"].get("stage"),
                "is_knee": asked == knee,
                "is_highest": asked == highest,
            }
        )
    ended = wording.short(result.get("sweep_ended") or "").rstrip(".")
    return {
        "rows": stages,
        "unit": wording.load_unit(result["spec"]),
        "head": next((row["asked"] for row in stages if row["is_head"]), None),
        "knee": knee,
        "why": why,
        "highest": highest,
        "ended": ended,
    }


def _environment(recorded: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (
            name.replace("_", " "),
            wording.short(
                ", ".join(map(str, value)) if isinstance(value, list) else str(value), 300
            ),
        )
        for name, value in recorded.items()
    ]
