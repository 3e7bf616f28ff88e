"""What the load generator itself used, and how late it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests.report.plots.plot import Plot, axis, line, phases, rounded, time_axis

_ROWS = (
    ("cpu", 100.0, "CPU of the client", "% of a core", "s6"),
    ("lag_ms", 1.0, "Worst lag of the client's loop", "ms", "s6"),
)


def plots(result: Mapping[str, Any]) -> list[Plot]:
    """Return CPU and lag over time."""
    rows = result["client"].get("series") or []
    found = []
    for key, scale, title, unit, colour in _ROWS:
        values = [np.nan if row.get(key) is None else row[key] * scale for row in rows]
        if not np.isfinite(values).any():
            continue
        trace = line(
            rounded([row["t"] for row in rows]),
            rounded(values, 2),
            title,
            colour,
            hovertemplate=f"%{{y:.3g}} {unit}<extra></extra>",
        )
        layout = {"xaxis": time_axis(result), "yaxis": axis(), "shapes": phases(result)}
        found.append(
            Plot(f"client-{key.removesuffix('_ms')}", title, "", unit, [trace], layout, low=True)
        )
    return found
