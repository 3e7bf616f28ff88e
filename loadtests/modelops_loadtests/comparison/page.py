"""A comparison as one HTML page that opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from modelops.report.page import render
from modelops_loadtests.comparison import wording
from modelops_loadtests.comparison.compare import METHODS
from modelops_loadtests.comparison.run import Run
from modelops_loadtests.definitions import TIMINGS
from modelops_loadtests.report.page import script_json
from modelops_loadtests.report.plots.plot import (
    Figure,
    Legend,
    Plot,
    axis,
    is_wide,
    line,
    ms_axis,
    rounded,
)
from modelops_loadtests.report.wording import (
    MARKS,
    amount,
    bound,
    interval,
    metric,
    short,
)
from modelops_loadtests.report.wording import (
    TIMINGS as NAMES,
)
from modelops_loadtests.samples import Floats

_COLOURS = {"a": "s1", "b": "s4"}
_POINTS = 600
_ROW_REM = 1.35
_EVERY = {"tickmode": "linear", "dtick": 1}
_DISTRIBUTIONS = ("ttft", "itl", "e2e")


def page(result: Mapping[str, Any], a: Sequence[Run], b: Sequence[Run]) -> str:
    """Return the whole page for the result of ``compare_files`` and the runs it is of."""
    from plotly.offline import get_plotlyjs

    tone, head = wording.headline(result)
    plots = [*_changes(result), *_distributions(a, b)]
    drawn = [{"id": plot.id, "data": plot.data, "layout": plot.layout} for plot in plots]
    return render(
        "compare.html.j2",
        package="modelops_loadtests.report",
        result=result,
        tone=tone,
        headline=f"{MARKS[tone]} {head}" if result["verdict"] != "MEASURED" else head,
        details=[short(text, 600) for text in (*result["reasons"], *result["warnings"])],
        sides=[_side(result, side) for side in ("a", "b")],
        rows=[wording.row(row) for row in result["rows"]],
        gates=[_gate(gate) for gate in result["gates"]],
        method=METHODS[result["method"]],
        chance=wording.chance(result),
        plots=plots,
        tall=_ROW_REM * sum(r["ratio"] is not None for r in result["rows"]) + 3,
        plots_json=script_json(drawn),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own source, not data
    )


def _side(result: Mapping[str, Any], side: str) -> dict[str, Any]:
    runs = result[side]
    return {
        "letter": side.upper(),
        "colour": _COLOURS[side],
        "runs": [
            {
                "name": short(run["name"], 120),
                "verdict": run["verdict"],
                "requests": f"{run['requests']:,}",
                "seconds": run["seconds"],
                "started_at": run["started_at"][:19].replace("T", " "),
            }
            for run in runs
        ],
    }


def _gate(gate: Mapping[str, Any]) -> dict[str, str]:
    tone = {"PASS": "good", "FAIL": "bad"}.get(gate["verdict"], "warn")
    return {
        "tone": tone,
        "verdict": f"{MARKS[tone]} {gate['verdict']}",
        "name": metric(gate["metric"]),
        "bound": bound(gate),
        "value": amount(gate["metric"], gate["value"]),
        "interval": interval(gate) or "",
        "detail": short(gate["detail"]),
    }


def _changes(result: Mapping[str, Any]) -> list[Plot]:
    """Return each ratio with its interval, on one axis: what crosses the line is not shown."""
    rows = [r for r in result["rows"] if r["ratio"] is not None and r["ratio"]["value"] is not None]
    if not rows:
        return []
    percents = [[_percent(r["ratio"][end]) for end in ("low", "value", "high")] for r in rows]
    reach = 1.15 * max(
        5.0, *(abs(p) for row in percents for p in row if p is not None and abs(p) < 300)
    )
    data: list[Figure] = []
    names = [metric(r["metric"]) for r in rows]
    for shown, colour in (("none", "s6"), ("better", "good"), ("worse", "bad")):
        chosen = [i for i, r in enumerate(rows) if r["shown"] == shown]
        if not chosen:
            continue
        ends = [
            [_near(percents[i][e], reach, s) for i in chosen] for e, s in ((0, -1), (1, 0), (2, 1))
        ]
        low, value, high = (np.array(e, dtype=np.float64) for e in ends)
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": wording.SHOWN[shown],
                "x": rounded(value),
                "y": [names[i] for i in chosen],
                "marker": {"color": colour, "size": 8},
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": rounded(high - value),
                    "arrayminus": rounded(value - low),
                    "color": colour,
                    "thickness": 2,
                    "width": 4,
                },
                "hovertemplate": "%{y}: %{x:+.1f} %<extra></extra>",
            }
        )
    zero = {"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper"}
    layout = {
        "xaxis": {"range": [-reach, reach], "ticksuffix": " %"},
        "yaxis": {"categoryorder": "array", "categoryarray": names[::-1], **_EVERY},
        "shapes": [{**zero, "line": {"color": "muted", "width": 1.5}}],
        "margin": {"l": 150, "r": 14, "t": 8, "b": 26},
    }
    note = "Where an interval crosses the line, no difference is shown."
    legend: Legend = [
        ("good", "dot", "better"),
        ("bad", "dot", "worse"),
        ("s6", "dot", "no difference shown"),
    ]
    return [Plot("changes", "B against A", note, "change of each figure", data, layout, legend)]


def _percent(times: float | None) -> float | None:
    return None if times is None else (times - 1) * 100


def _near(value: float | None, reach: float, side: int) -> float:
    return side * reach if value is None else float(np.clip(value, -reach, reach))


def _distributions(a: Sequence[Run], b: Sequence[Run]) -> list[Plot]:
    found = []
    for name in _DISTRIBUTIONS:
        sides = {letter: _values(name, runs) for letter, runs in (("a", a), ("b", b))}
        if not all(len(values) for values in sides.values()):
            continue
        together = np.concatenate(list(sides.values()))
        traces = [_within(sides[s], s.upper(), _COLOURS[s]) for s in ("a", "b")]
        layout = {
            "xaxis": ms_axis(together, rangemode="normal"),
            "yaxis": axis(range=[0, 102], ticksuffix=" %"),
        }
        unit = "answered within" + (", time logarithmic" if is_wide(together) else "")
        legend: Legend = [(_COLOURS[s], "line", s.upper()) for s in ("a", "b")]
        plot = Plot(f"{name}-within", NAMES[name], "", unit, traces, layout, legend, wide=False)
        found.append(plot)
    return found


def _values(name: str, runs: Sequence[Run]) -> Floats:
    every = [TIMINGS[name].values(run.measurement.ok) * 1000 for run in runs]
    values = np.concatenate(every)
    return np.sort(values[np.isfinite(values)])


def _within(ordered: Floats, name: str, colour: str) -> Figure:
    share = np.arange(1, len(ordered) + 1) / len(ordered) * 100
    chosen = np.unique(np.linspace(0, len(ordered) - 1, min(len(ordered), _POINTS)).astype(int))
    return line(
        rounded(ordered[chosen]),
        rounded(share[chosen]),
        name,
        colour,
        line={"shape": "hv"},
        hovertemplate=f"{name}: %{{y:.1f}} % within %{{x:.1f}} ms<extra></extra>",
    )
