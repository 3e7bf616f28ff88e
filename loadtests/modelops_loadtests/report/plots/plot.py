"""One plot: what it shows in words, a legend, and a figure of plotly with one pair of axes.

Every plot over time has the same margins and the same range of its x axis, so that what lies below
each other happened together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from modelops_loadtests.report.wording import ms
from modelops_loadtests.samples import Floats

Figure = dict[str, Any]
Shape = Literal["dot", "line", "dash", "cross", "area"]

COLOURS = {
    "e2e": "s1",
    "ttft": "s2",
    "throughput": "s3",
    "itl": "s4",
    "tokens": "s5",
    "quiet": "s6",
}
LOG_FROM = 20.0
Legend = list[tuple[str, Shape, str]]
"""Of each row: a colour's role, what is drawn in it, and its name."""


@dataclass(frozen=True)
class Plot:
    """A plot of the page. ``unit`` and ``legend`` are written above it."""

    id: str
    title: str
    note: str
    unit: str
    data: list[Figure]
    layout: Figure
    legend: Legend = field(default_factory=Legend)
    wide: bool = True
    low: bool = False


def rounded(values: npt.ArrayLike, digits: int = 3) -> list[float | None]:
    """Return numbers that JSON can carry, at most ``digits`` after the point."""
    return [
        round(float(v), digits) if math.isfinite(v) else None
        for v in np.asarray(values, dtype=np.float64)
    ]


def spread(values: Floats) -> float:
    """Return how many times the 99.5th percentile is the 0.5th one, of values above 0."""
    positive = values[values > 0]
    if len(positive) < 2:
        return 1.0
    low, high = np.percentile(positive, [0.5, 99.5])
    return float(high / low)


def axis(**more: Any) -> Figure:
    """Return a linear axis from zero."""
    return {"rangemode": "tozero", **more}


def log_axis(values: npt.ArrayLike, write: Callable[[float], str], **more: Any) -> Figure:
    """Return a logarithmic axis for ``values``; ``write`` says what stands at a mark."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known) & (known > 0)]
    low, high = math.floor(np.log10(known.min())), math.ceil(np.log10(known.max()))
    decades = float(np.log10(known.max() / known.min()))
    steps = (1, 2, 5) if decades < 1.3 else (1, 3) if decades < 3 else (1,)
    marks = [float(f"{step}e{power}") for power in range(low - 1, high + 1) for step in steps]
    return {"type": "log", "tickvals": marks, "ticktext": [write(m) for m in marks], **more}


def ms_axis(values: npt.ArrayLike, *, log: bool | None = None, **more: Any) -> Figure:
    """Return an axis for ``values`` in milliseconds, in seconds where they are many.

    It is logarithmic where ``log`` says so; None: where the values spread widely.
    """
    known = np.asarray(values, dtype=np.float64)
    if is_wide(known) if log is None else log:
        return log_axis(known, ms, **more)
    known = known[np.isfinite(known)]
    top = float(known.max(initial=0.0)) or 1.0
    start = float(known.min(initial=top)) if more.get("rangemode") == "normal" else 0.0
    reach = max(top - start, 1e-6 * top) or top
    step = _round_step(reach / 5)
    marks = np.arange(math.floor(start / step), math.ceil((top + reach / 10) / step) + 1) * step
    in_s = top >= 2000
    digits = max(0, -math.floor(math.log10(step / 1000 if in_s else step)))
    words = [f"{m / 1000:.{digits}f} s" if in_s else f"{m:.{digits}f} ms" for m in marks]
    return axis(tickvals=rounded(marks, 6), ticktext=words, **more)


def _round_step(about: float) -> float:
    """Return the next of 1, 2 and 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(about))
    return next((k * power for k in (1, 2, 5) if k * power >= about * (1 - 1e-9)), 10 * power)


def is_wide(values: Floats) -> bool:
    """Whether values spread so widely that a linear axis would squeeze most of them."""
    return spread(values) > LOG_FROM


def time_axis(result: Mapping[str, Any]) -> Figure:
    """Return the x axis of everything over time: from the start until the last reply."""
    window = result["window"]
    end = window["end_s"] + window.get("drained_after_s", 0.0)
    end = max([end, *(row["end_s"] for row in result.get("sweep") or ())])
    return {"range": [0, round(max(end, 0.1) * 1.01, 3)], "ticksuffix": " s"}


def line(x: list[Any], y: list[Any], name: str, colour: str, **more: Any) -> Figure:
    """Return a line; a gap where there is no value."""
    style = {"color": colour, "width": 2, **more.pop("line", {})}
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": style,
        **more,
    }


def shade(start: float, end: float, colour: str = "s6") -> Figure:
    """Return a band over a part of the time."""
    return {
        "type": "rect",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"width": 0},
        "fillcolor": f"{colour}-soft",
        "layer": "below",
    }


def phases(result: Mapping[str, Any]) -> list[Figure]:
    """Return bands over what was not measured, and lines where the run was extended."""
    window, rows = result["window"], result.get("sweep") or ()
    measured = sorted((row["start_s"], row["end_s"]) for row in rows)
    measured = measured or [(window["start_s"], window["end_s"])]
    ends = [0.0, *(end for _, end in measured)]
    starts = [*(start for start, _ in measured), time_axis(result)["range"][1]]
    bands = [shade(a, b) for a, b in zip(ends, starts, strict=True) if b - a > 0.05]
    for extension in result.get("extensions") or ():
        at = extension["at_s"]
        bands.append(
            {
                "type": "line",
                "x0": at,
                "x1": at,
                "y0": 0,
                "y1": 1,
                "yref": "paper",
                "line": {"color": "s6", "width": 1, "dash": "dot"},
            }
        )
    return bands
