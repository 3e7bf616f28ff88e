"""How latencies are distributed: histograms of each timing, and how many came within what time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests import definitions
from modelops_loadtests.report import wording
from modelops_loadtests.report.plots.plot import (
    COLOURS,
    Figure,
    Plot,
    axis,
    is_wide,
    line,
    ms_axis,
    rounded,
)
from modelops_loadtests.report.window import measured
from modelops_loadtests.samples import Floats, SampleTable

_MOST_BARS, _LEAST_BARS = 48, 12
_LEAST_MS = 0.001
_SHOWN = ("ttft", "itl", "e2e")
_TITLES = {
    "ttft": "Time to first token",
    "itl": "Gaps between chunks (ITL)",
    "e2e": "End to end",
}
_PERCENTILES = (50, 95, 99)


def plots(result: Mapping[str, Any], samples: SampleTable) -> list[Plot]:
    """Return a histogram of each timing there is, and their cumulative shares."""
    ok = measured(result, samples)
    ok = ok.where(ok.having("ok"))
    found = []
    values: dict[str, Floats] = {}
    for name in _SHOWN:
        own = definitions.TIMINGS[name].values(ok) * 1000
        own = own[np.isfinite(own)]
        if len(own):
            values[name] = own
            found.append(_histogram(result, name, own))
    return [*found, _shares(values)] if values else []


def _histogram(result: Mapping[str, Any], name: str, values: Floats) -> Plot:
    log = is_wide(values)
    bars = int(np.clip(2 * np.sqrt(len(values)), _LEAST_BARS, _MOST_BARS))
    # One outlier would squeeze all else into one bar: the last bar holds the slowest 0.5%.
    low, high = float(values.min()), float(np.percentile(values, 99.5))
    if log:
        # Gaps of chunks that came together are 0, which has no place on such an axis.
        lowest = max(low, float(np.percentile(values, 0.5)), _LEAST_MS)
        low, high = np.log10(lowest), np.log10(max(high, lowest))
        edges = np.logspace(low, max(high, low + 0.01), bars + 1)
    else:
        edges = np.linspace(low, max(high, low + 1e-3), bars + 1)
    counts, _ = np.histogram(np.clip(values, edges[0], edges[-1]), bins=edges)
    colour = COLOURS[name]
    trace = line(
        rounded([edges[0], *edges]),
        [0, *(int(c) for c in counts), 0],
        _TITLES[name],
        colour,
        fill="tozeroy",
        fillcolor=f"{colour}-soft",
        line={"shape": "hv", "width": 1.5},
        hovertemplate="%{y} from %{x:.1f} ms<extra></extra>",
    )
    marks: list[Figure] = []
    labels: list[Figure] = []
    row = result["summary"].get(f"{name}_ms") or {}
    for i, percent in enumerate(_PERCENTILES):
        value = row.get(f"p{percent}")
        if value is None:
            continue
        if log:
            value = max(value, float(edges[0]))
        marks.append(_mark(value))
        labels.append(_label(f"p{percent}", float(np.log10(value)) if log else value, 2 - i))
    unit = "gaps" if name == "itl" else "requests"
    layout = {
        "xaxis": ms_axis(edges, log=log, rangemode="normal"),
        "yaxis": axis(),
        "shapes": marks,
        "annotations": labels,
    }
    note = f"Of {len(values):,} {unit}; the last bar also holds the slowest 0.5%."
    per_chunk = result["summary"].get("tokens_per_chunk")
    if name == "itl" and per_chunk is not None:
        note += f" {per_chunk:.3g} tokens a chunk: TPOT is a token's share, a gap is a chunk's."
    unit += ", time logarithmic" if log else ""
    title = _TITLES[name]
    return Plot(f"{name}-histogram", title, note, unit, [trace], layout, wide=False)


def _mark(value: float) -> Figure:
    return {
        "type": "line",
        "x0": value,
        "x1": value,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": "muted", "width": 1, "dash": "dot"},
    }


def _label(text: str, at: float, row: int) -> Figure:
    return {
        "text": text,
        "x": at,
        "y": 1.0 - 0.11 * row,
        "yref": "paper",
        "yanchor": "top",
        "showarrow": False,
        "xanchor": "left",
        "xshift": 1,
        "font": {"color": "ink", "size": 11},
    }


def _shares(values: Mapping[str, Floats]) -> Plot:
    everything = np.concatenate(list(values.values()))
    log = is_wide(everything)
    traces = []
    for name, own in values.items():
        ordered = np.sort(own)
        share = np.arange(1, len(own) + 1) / len(own) * 100
        chosen = np.unique(np.linspace(0, len(own) - 1, min(len(own), 600)).astype(int))
        traces.append(
            line(
                rounded([ordered[0], *ordered[chosen]]),
                rounded([0.0, *share[chosen]]),
                wording.TIMINGS[name],
                COLOURS[name],
                line={"shape": "hv"},
                hovertemplate="%{y:.1f} % within %{x:.1f} ms<extra></extra>",
            )
        )
    layout = {
        "xaxis": ms_axis(everything, log=log, rangemode="normal"),
        "yaxis": axis(range=[0, 102], ticksuffix=" %"),
    }
    return Plot(
        "answered-within",
        "Answered within",
        "How many percent took no longer.",
        "time logarithmic" if log else "",
        traces,
        layout,
        [(COLOURS[name], "line", wording.TIMINGS[name]) for name in values],
        wide=False,
    )
