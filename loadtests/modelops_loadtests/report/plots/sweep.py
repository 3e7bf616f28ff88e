"""A sweep: throughput and latency against load, the knee, and the highest load within the SLOs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests.definitions import timing_of
from modelops_loadtests.report import wording
from modelops_loadtests.report.plots.plot import (
    COLOURS,
    Figure,
    Legend,
    Plot,
    axis,
    is_wide,
    line,
    log_axis,
    ms_axis,
    rounded,
)
from modelops_loadtests.report.wording import load_of, load_unit

_PER_SECOND = (
    ("qps", "completed", COLOURS["throughput"]),
    ("goodput_rps", "within every latency objective", "good"),
)
_LINES = (("ttft", "p95"), ("e2e", "p95"), ("itl", "p95"))


def plots(result: Mapping[str, Any]) -> list[Plot]:
    """Return throughput and latency against the load that was asked for; none without a sweep."""
    rows = sorted(result.get("sweep") or [], key=lambda row: float(row["asked"]))
    return [_throughput(result, rows), _latency(result, rows)] if len(rows) > 1 else []


def _throughput(result: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Plot:
    asked = [float(row["asked"]) for row in rows]
    done = [row["summary"].get("qps") for row in rows]
    traces, legend = [], Legend()
    if load_unit(result["spec"]) == "requests/s":
        traces.append(
            line(
                asked,
                asked,
                "asked",
                COLOURS["quiet"],
                line={"width": 1, "dash": "dot"},
                hovertemplate="asked %{x:.4g}/s<extra></extra>",
            )
        )
        legend.append((COLOURS["quiet"], "dash", "asked"))
    for key, name, colour in _PER_SECOND:
        values = [row["summary"].get(key) for row in rows]
        if any(v is not None for v in values):
            traces.append(_measured(asked, values, name, colour, "/s"))
            traces[-1]["line"]["width"] = 5 if key == "qps" else 2  # where all is good, one on top
            legend.append((colour, "line", name))
    marks, labels = _marks(result, asked)
    legend += _marks_legend(result)
    note = "Where the line leaves what was asked, the server no longer keeps up."
    if load_unit(result["spec"]) == "users":
        note = "Where the line goes flat, more users only wait for longer."
    highest = max((v for v in done if v is not None), default=0.0)
    layout = {
        "xaxis": _load_axis(result, asked),
        "yaxis": axis(range=[0, highest * 1.15 or 1]),
        "shapes": marks,
        "annotations": labels,
    }
    title = "Throughput against load"
    return Plot("sweep-throughput", title, note, "requests/s", traces, layout, legend, wide=False)


def _latency(result: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Plot:
    asked = [float(row["asked"]) for row in rows]
    traces, legend = [], Legend()
    everything: list[float] = []
    for timing, percentile in _LINES:
        values = [(row["summary"].get(f"{timing}_ms") or {}).get(percentile) for row in rows]
        if not any(v is not None for v in values):
            continue
        everything += [v for v in values if v is not None]
        name = f"{wording.TIMINGS[timing]} {percentile}"
        traces.append(_measured(asked, values, name, COLOURS[timing], " ms"))
        legend.append((COLOURS[timing], "line", name))
    log = is_wide(np.array(everything))
    for gate in result["gates"]:
        parts = timing_of(gate["metric"])
        drawn = parts is not None and parts in _LINES
        if parts and drawn and (log or gate["bound"] <= 1.5 * max(everything, default=0.0)):
            words = f"{wording.metric(gate['metric'])} {wording.bound(gate)}"
            colour, bound = COLOURS[parts[0]], float(gate["bound"])
            style = {"width": 1.5, "dash": "dash"}
            traces.append(line([asked[0], asked[-1]], [bound, bound], words, colour, line=style))
            legend.append((colour, "dash", wording.bound(gate)))
    marks, labels = _marks(result, asked)
    layout = {
        "xaxis": _load_axis(result, asked),
        "yaxis": ms_axis(everything, log=log),
        "shapes": marks,
        "annotations": labels,
    }
    return Plot(
        "sweep-latency",
        "Latency against load",
        "The 95th percentile of each stage; dashed is what was asked.",
        "logarithmic" if log else "",
        traces,
        layout,
        legend,
        wide=False,
    )


def _measured(x: list[float], y: list[Any], name: str, colour: str, ending: str) -> Figure:
    values = rounded([np.nan if v is None else v for v in y])
    return line(
        list(x),
        values,
        name,
        colour,
        mode="lines+markers",
        marker={"color": colour, "size": 7},
        hovertemplate=f"{name}: %{{y:.4g}}{ending} at %{{x:.4g}}<extra></extra>",
    )


def _load_axis(result: Mapping[str, Any], asked: list[float]) -> Figure:
    named = {
        "title": {"text": f"load, {load_unit(result['spec'])}", "standoff": 4},
        "rangemode": "normal",
    }
    return log_axis(asked, "{:,g}".format, **named) if _log(asked) else axis(**named)


def _log(asked: list[float]) -> bool:
    return asked[-1] / asked[0] > 8


def _marks(result: Mapping[str, Any], asked: list[float]) -> tuple[list[Figure], list[Figure]]:
    """Return a line at the knee, and a band as far as the SLOs hold."""
    shapes, labels = [], []
    highest, knee = load_of(result.get("highest_within_slo")), load_of(result.get("knee"))
    if highest is not None:
        shapes.append(
            {
                "type": "rect",
                "x0": asked[0],
                "x1": highest,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"width": 0},
                "fillcolor": "good-soft",
                "layer": "below",
            }
        )
    for value, colour, words, height in (
        (knee, "ink", "knee", 1.0),
        (highest, "good", f"{highest or 0:g}", 0.88),
    ):
        if value is None:
            continue
        style = {"color": colour, "width": 1.5, "dash": "dot"}
        ends = {"x0": value, "x1": value, "y0": 0, "y1": 1, "yref": "paper"}
        shapes.append({"type": "line", **ends, "line": style})
        at = float(np.log10(value)) if _log(asked) else value
        last = value > 0.8 * asked[-1]
        labels.append(
            {
                "text": words,
                "x": at,
                "y": height,
                "yref": "paper",
                "yanchor": "top",
                "showarrow": False,
                "xanchor": "right" if last else "left",
                "xshift": -3 if last else 3,
                "font": {"color": colour, "size": 11},
            }
        )
    return shapes, labels


def _marks_legend(result: Mapping[str, Any]) -> Legend:
    highest = load_of(result.get("highest_within_slo"))
    if highest is None:
        return []
    return [
        ("good", "area", f"every objective holds, up to {highest:g} {load_unit(result['spec'])}")
    ]
