"""The report's plots as plain plotly figures; colours are named roles that the page fills in."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelops_loadtests.definitions import e2e
from modelops_loadtests.measure import Measurement
from modelops_loadtests.percentiles import percentile
from modelops_loadtests.samples import Floats, SampleTable

MAX_POINTS = 3000
Figure = dict[str, Any]


def figures(result: dict[str, Any], measurement: Measurement) -> list[dict[str, Any]]:
    """Return the plots in the page's order: id, title, what it shows, traces and layout."""
    found = []
    if len(measurement.inside):
        found.append(_over_time(measurement, _bound(result)))
    if len(measurement.ok):
        found += [_histogram(measurement), _ecdf(measurement, _bound(result))]
    if result["throughput"]:
        found.append(_throughput(result))
    if result["client"]["series"]:
        found.append(_client(result))
    return found


def _bound(result: dict[str, Any]) -> tuple[str, float] | None:
    """Return the tightest bound on an end-to-end percentile, to draw."""
    bounds = [
        (g["metric"], float(g["bound"])) for g in result["gates"] if g["metric"].startswith("e2e_p")
    ]
    return min(bounds, key=lambda b: b[1], default=None)


def _plot(name: str, title: str, note: str, data: list[Figure], layout: Figure) -> dict[str, Any]:
    return {"id": name, "title": title, "note": note, "data": data, "layout": layout}


def _axis(title: str, **more: Any) -> Figure:
    return {"title": {"text": title}, "rangemode": "tozero", **more}


def _thinned(table: SampleTable, points: int) -> SampleTable:
    """Keep at most ``points`` samples: the slowest tenth of them whole, the rest evenly."""
    if len(table) <= points:
        return table
    slowest = np.argsort(e2e(table))[-points // 10 :]
    even = np.linspace(0, len(table) - 1, points - len(slowest)).astype(int)
    mask = np.zeros(len(table), dtype=np.bool_)
    mask[slowest] = True
    mask[even] = True
    return table.where(mask)


def _points(table: SampleTable, name: str, colour: str, symbol: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": _rounded(table.due),
        "y": _rounded(e2e(table) * 1000),
        "marker": {"color": colour, "size": 5, "opacity": 0.65, "symbol": symbol},
        "hovertemplate": "%{y:.1f} ms at %{x:.2f} s<extra>" + name + "</extra>",
    }


def _rounded(values: Floats) -> list[float]:
    return [round(float(v), 3) for v in values]


def _over_time(measurement: Measurement, bound: tuple[str, float] | None) -> dict[str, Any]:
    inside = measurement.inside
    traces = [_points(_thinned(measurement.ok, MAX_POINTS), "ok", "s1", "circle")]
    for outcome, colour, symbol in (("error", "bad", "x"), ("cut", "warn", "triangle-up-open")):
        chosen = inside.where(np.asarray(inside.outcome == outcome))
        if len(chosen):
            name = "failed" if outcome == "error" else "cut"
            traces.append(_points(_thinned(chosen, 1000), name, colour, symbol))
    shown = sum(len(t["x"]) for t in traces)
    note = "Each point is one request, at the moment when it was due."
    if shown < len(inside):
        note += f" {shown:,} of {len(inside):,} are drawn, with all of the slowest."
    bound = _near(bound, e2e(inside) * 1000)
    layout = {
        "xaxis": _axis("seconds since the start", rangemode="normal"),
        "yaxis": _axis("latency, ms"),
        "shapes": _line(bound, "y"),
        "annotations": _label(bound, "y"),
    }
    return _plot("latency-over-time", "Latency over time", note, traces, layout)


def _near(bound: tuple[str, float] | None, values: Floats) -> tuple[str, float] | None:
    """Return the bound, unless to draw it would squeeze the values into a corner."""
    return None if bound is None or not len(values) or bound[1] > 1.5 * values.max() else bound


def _line(bound: tuple[str, float] | None, axis: str) -> list[Figure]:
    if bound is None:
        return []
    across = "x" if axis == "y" else "y"
    return [
        {
            "type": "line",
            f"{axis}0": bound[1],
            f"{axis}1": bound[1],
            f"{across}0": 0,
            f"{across}1": 1,
            f"{across}ref": "paper",
            "line": {"color": "bad", "width": 1.5, "dash": "dash"},
        }
    ]


def _label(bound: tuple[str, float] | None, axis: str) -> list[Figure]:
    if bound is None:
        return []
    place = (
        {"x": 1, "xref": "paper", "y": bound[1], "xanchor": "right", "yanchor": "bottom"}
        if axis == "y"
        else {"y": 1, "yref": "paper", "x": bound[1], "xanchor": "left", "yanchor": "top"}
    )
    return [
        {
            "text": f"{bound[0]} ≤ {bound[1]:g}",
            "showarrow": False,
            "font": {"color": "bad"},
            **place,
        }
    ]


def _histogram(measurement: Measurement) -> dict[str, Any]:
    values = e2e(measurement.ok) * 1000
    # One outlier would squeeze everything else into one bar: the last bar holds the slowest 0.5 %.
    low, high = float(values.min()), percentile(values, 99.5) or 0.0
    edges = np.linspace(low, max(high, low + 1e-3), 41)
    counts, _ = np.histogram(np.minimum(values, edges[-1]), bins=edges)
    trace = {
        "type": "bar",
        "name": "requests",
        "x": _rounded((edges[:-1] + edges[1:]) / 2),
        "y": [int(c) for c in counts],
        "width": _rounded(np.diff(edges)),
        "marker": {"color": "s1", "line": {"width": 0}},
        "hovertemplate": "%{y} requests near %{x:.1f} ms<extra></extra>",
    }
    lines = [
        (f"p{p}", percentile(values, p), colour)
        for p, colour in ((50, "s3"), (95, "s4"), (99, "s5"))
    ]
    layout = {
        "xaxis": _axis("latency, ms", rangemode="normal"),
        "yaxis": _axis("requests"),
        "bargap": 0.05,
        "shapes": [_mark(value, colour) for _, value, colour in lines],
        "annotations": [
            {
                "text": name,
                "x": value,
                "y": 1.0 - 0.08 * i,
                "yref": "paper",
                "showarrow": False,
                "xanchor": "left",
                "xshift": 3,
                "font": {"color": colour},
            }
            for i, (name, value, colour) in enumerate(lines)
        ],
    }
    note = "Of requests that succeeded; the last bar also holds the slowest 0.5 %."
    return _plot("latency-histogram", "Latency distribution", note, [trace], layout)


def _mark(value: float | None, colour: str) -> Figure:
    return {
        "type": "line",
        "x0": value,
        "x1": value,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": colour, "width": 1.5, "dash": "dot"},
    }


def _ecdf(measurement: Measurement, bound: tuple[str, float] | None) -> dict[str, Any]:
    values = np.sort(e2e(measurement.ok) * 1000)
    share = np.arange(1, len(values) + 1) / len(values) * 100
    chosen = np.unique(np.linspace(0, len(values) - 1, min(len(values), 800)).astype(int))
    bound = _near(bound, values)
    trace = {
        "type": "scatter",
        "mode": "lines",
        "line": {"color": "s2", "width": 2, "shape": "hv"},
        "x": _rounded(values[chosen]),
        "y": _rounded(share[chosen]),
        "hovertemplate": "%{y:.1f} % within %{x:.1f} ms<extra></extra>",
    }
    layout = {
        "xaxis": _axis("latency, ms", rangemode="normal"),
        "yaxis": _axis("requests answered, %", range=[0, 101]),
        "shapes": _line(bound, "x"),
        "annotations": _label(bound, "x"),
    }
    note = "How many of the requests that succeeded were answered within a time."
    return _plot("latency-ecdf", "Answered within", note, [trace], layout)


def _throughput(result: dict[str, Any]) -> dict[str, Any]:
    rows = result["throughput"]
    trace = {
        "type": "scatter",
        "mode": "lines",
        "name": "requests/s",
        "line": {"color": "s1", "width": 2, "shape": "hvh"},
        "fill": "tozeroy",
        "fillcolor": "s1-soft",
        "x": [round(r["t"], 3) for r in rows],
        "y": [r["qps"] for r in rows],
        "hovertemplate": "%{y:.1f} requests/s<extra></extra>",
    }
    layout = {
        "xaxis": _axis("seconds since the start", rangemode="normal"),
        "yaxis": _axis("requests/s"),
    }
    note = "Requests completed without error, per second."
    return _plot("throughput", "Throughput over time", note, [trace], layout)


def _client(result: dict[str, Any]) -> dict[str, Any]:
    rows = result["client"]["series"]
    times = [r["t"] for r in rows]
    traces = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "CPU, % of a core",
            "line": {"color": "s3", "width": 2},
            "x": times,
            "y": [round(r["cpu"] * 100, 1) for r in rows],
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "worst lag, ms",
            "line": {"color": "s4", "width": 2},
            "x": times,
            "y": [r["lag_ms"] for r in rows],
            "yaxis": "y2",
        },
    ]
    layout = {
        "xaxis": _axis("seconds since the start", rangemode="normal"),
        "yaxis": _axis("CPU, %", range=[0, 105]),
        "yaxis2": _axis("lag, ms", overlaying="y", side="right", showgrid=False, tickmode="auto"),
    }
    note = "What the load generator itself used, and how late it ran, each half second."
    return _plot("client-health", "CPU and lag of the load generator", note, traces, layout)
