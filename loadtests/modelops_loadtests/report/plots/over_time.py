"""Latencies and throughput over the time of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests import definitions
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
    ms_axis,
    phases,
    rounded,
    time_axis,
)
from modelops_loadtests.samples import Mask, SampleTable

MAX_POINTS = 3000


def plots(result: Mapping[str, Any], samples: SampleTable) -> list[Plot]:
    """Return latency over time, and throughput."""
    found = []
    if len(samples):
        found.append(_latency(result, samples))
    return [*found, *_throughput(result)]


def _latency(result: Mapping[str, Any], samples: SampleTable) -> Plot:
    ok = samples.having("ok")
    streams = bool((ok & ~np.isnan(samples["first_token"])).any())
    traces: list[Figure] = []
    legend: Legend = []
    budget = MAX_POINTS // (2 if streams else 1)
    shown = _thinned(samples, ok, budget)
    latency, first = definitions.e2e(samples) * 1000, definitions.ttft(samples) * 1000
    due = samples.due
    names = [("e2e", "end to end", latency)] + ([("ttft", "first token", first)] if streams else [])
    for key, name, values in names:
        traces.append(_points(due[shown], values[shown], name, COLOURS[key], "circle"))
        legend.append((COLOURS[key], "dot", name))
    for outcome, name, colour, symbol in (
        ("error", "failed", "bad", "x"),
        ("cut", "cut off at the end", "warn", "triangle-up-open"),
    ):
        chosen = np.asarray(samples.outcome == outcome)
        if chosen.any():
            mask = _thinned(samples, chosen, 1000)
            taken = (samples["end"] - due)[mask] * 1000
            traces.append(_points(due[mask], taken, name, colour, symbol, 7))
            legend.append((colour, "cross", f"{name}: {int(chosen.sum()):,}"))
    drawn = latency[ok] if not streams else np.concatenate([latency[ok], first[ok]])
    drawn = drawn[np.isfinite(drawn)]
    log = is_wide(drawn)
    for bound in _bounds(result, streams):
        top = float(drawn.max()) if len(drawn) else 0.0
        if not log and bound[2] > 1.5 * top:
            continue  # it would squeeze what was measured into a corner
        traces.append(_across(result, bound))
        legend.append((bound[0], "dash", bound[1]))
    note = "Each point is a request, where it was due."
    if int(ok.sum()) > int(shown.sum()):
        note += f" {int(shown.sum()):,} of {int(ok.sum()):,} are drawn, with all of the slowest."
    note += _shaded(result)
    return Plot(
        "latency-over-time",
        "Latency",
        note,
        "logarithmic" if log else "",
        traces,
        {"xaxis": time_axis(result), "yaxis": ms_axis(drawn, log=log), "shapes": phases(result)},
        legend,
    )


def _shaded(result: Mapping[str, Any]) -> str:
    window = result["window"]
    words = []
    if result.get("sweep"):
        words.append("what lies between the stages")
    elif window["start_s"] > 0:
        words.append("the warm-up")
    if window.get("drained_after_s", 0) > 0.05:
        words.append("the wait for the last replies")
    told = f" Shaded, and not measured: {' and '.join(words)}." if words else ""
    extensions = result.get("extensions") or ()
    if extensions:
        told += " A dotted line: here the run was extended, since an objective was undecided."
    return told


def _points(x: Any, y: Any, name: str, colour: str, symbol: str, size: int = 5) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": rounded(x),
        "y": rounded(y),
        "marker": {
            "color": colour,
            "size": size,
            "opacity": 0.6 if symbol == "circle" else 1,
            "symbol": symbol,
            "line": {"width": 0},
        },
        "hovertemplate": f"{name}: %{{y:.1f}} ms<br>due at %{{x:.2f}}<extra></extra>",
    }


def _thinned(samples: SampleTable, chosen: Mask, most: int) -> Mask:
    """Return at most ``most`` of the chosen: the slowest tenth of them whole, the rest evenly."""
    places = np.flatnonzero(chosen)
    if len(places) <= most:
        return chosen
    latency = (samples["end"] - samples.due)[places]
    keep = np.zeros(len(samples), dtype=np.bool_)
    keep[places[np.argsort(latency)[-most // 10 :]]] = True
    keep[places[np.linspace(0, len(places) - 1, most - most // 10).astype(int)]] = True
    return keep


def _bounds(result: Mapping[str, Any], streams: bool) -> list[tuple[str, str, float]]:
    """Return colour, words and milliseconds of the tightest objective of each timing drawn."""
    tightest: dict[str, tuple[str, str, float]] = {}
    for gate in result["gates"]:
        parts = timing_of(gate["metric"])
        if parts is None or parts[0] not in (("e2e", "ttft") if streams else ("e2e",)):
            continue
        bound = float(gate["bound"])
        if parts[0] not in tightest or bound < tightest[parts[0]][2]:
            words = f"{wording.metric(gate['metric'])} {wording.bound(gate)}"
            tightest[parts[0]] = (COLOURS[parts[0]], words, bound)
    return list(tightest.values())


def _across(result: Mapping[str, Any], bound: tuple[str, str, float]) -> Figure:
    colour, words, value = bound
    return line(
        time_axis(result)["range"],
        [value, value],
        words,
        colour,
        line={"width": 1.5, "dash": "dash"},
        hovertemplate=f"{words}<extra></extra>",
    )


_PER_SECOND = (
    ("qps", "throughput", "Requests completed", "requests/s"),
    ("output_tokens_per_s", "tokens", "Tokens generated", "tokens/s"),
    ("items_per_s", "tokens", "Inputs answered", "inputs/s"),
)


def _throughput(result: Mapping[str, Any]) -> list[Plot]:
    rows = result["throughput"]
    found: list[Plot] = []
    for key, colour, title, unit in _PER_SECOND:
        values = [row.get(key) for row in rows]
        # One request is one input, in most runs: said once.
        if not any(values) or (found and values == [row.get("qps") for row in rows]):
            continue
        x, y = _steps([float(row["t"]) for row in rows], values)
        trace = line(
            rounded(x),
            rounded(y, 2),
            title,
            COLOURS[colour],
            fill="tozeroy",
            fillcolor=f"{COLOURS[colour]}-soft",
            hovertemplate=f"%{{y:.4g}} {unit}<extra></extra>",
            line={"shape": "hv"},
        )
        layout = {"xaxis": time_axis(result), "yaxis": axis(), "shapes": phases(result)}
        note = "Without error, per second, by when they ended." if key == "qps" else ""
        if result.get("sweep") and note:
            note += " Of the stage whose figures stand above."
        found.append(Plot(f"throughput-{key}", title, note, unit, [trace], layout, low=True))
    return found


def _steps(middles: list[float], values: list[Any]) -> tuple[list[float], list[float]]:
    """Return the edges of steps of one width, given their middles, and the value from each on."""
    half = (middles[1] - middles[0]) / 2 if len(middles) > 1 else 0.5
    known = [np.nan if v is None else float(v) for v in values]
    return [*(m - half for m in middles), middles[-1] + half], [*known, known[-1]]
