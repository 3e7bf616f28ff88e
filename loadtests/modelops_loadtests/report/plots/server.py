"""What the server said of itself during the run, on the time axis of the latencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests.report import wording
from modelops_loadtests.report.plots.plot import (
    Legend,
    Plot,
    axis,
    line,
    phases,
    rounded,
    time_axis,
)

_MOST_POINTS = 600
# Not those of the latencies, which stand above.
_COLOURS = ("ink", "s6", "s3", "s5", "s4", "s1")
_TITLES = {
    "requests": "Requests in the server",
    "queue, ms": "Wait for the engine",
    "batch": "Batch",
    "KV cache, %": "KV cache",
    "tokens/s": "Tokens, as the server counts them",
}
_UNITS = {"requests": "requests", "queue, ms": "ms", "batch": ""}


def plots(result: Mapping[str, Any]) -> list[Plot]:
    """Return one plot for each panel that has a series."""
    told = result.get("server_metrics") or {}
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for row in _of_the_run(result, told.get("series") or []):
        panels.setdefault(row["panel"], []).append(row)
    found = []
    for panel, rows in panels.items():
        several = len({row["model"] for row in rows}) > 1
        traces, legend = [], Legend()
        for row, colour in zip(rows, _COLOURS, strict=False):
            name = wording.short(row["title"], 80)
            if several and row["model"]:
                name += f", {wording.short(row['model'], 40)}"
            name = name.replace("<", "‹")  # plotly reads names as markup
            points = row["points"]
            if len(points) > _MOST_POINTS:
                chosen = np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int)
                points = [points[i] for i in chosen]
            traces.append(
                line(
                    rounded([at for at, _ in points]),
                    rounded([value for _, value in points]),
                    name,
                    colour,
                    hovertemplate=f"{name}: %{{y:.4g}}<extra></extra>",
                )
            )
            legend.append((colour, "line", name))
        layout = {"xaxis": time_axis(result), "yaxis": axis(), "shapes": phases(result)}
        slug = panel.split(",")[0].split("/")[0].replace(" ", "-").lower()
        title, unit = _TITLES.get(panel, panel), _UNITS.get(panel, panel.split(", ")[-1])
        if len(legend) == 1:
            title, legend = legend[0][2][:1].upper() + legend[0][2][1:], Legend()
        found.append(Plot(f"server-{slug}", title, "", unit, traces, layout, legend, low=True))
    return found


def _of_the_run(
    result: Mapping[str, Any], rows: list[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the series of the models that were loaded, where any are known by those names."""
    spec = result["spec"]
    names = {spec["model"], *(spec.get("models") or {}).values()}
    own = [row for row in rows if row["model"] in names or not row["model"]]
    return own or list(rows)
