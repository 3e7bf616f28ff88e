"""The result for people: one HTML page that opens without a network, and a terminal table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import orjson
from markupsafe import Markup

from modelops.report.page import render
from modelops_loadtests.figures import figures
from modelops_loadtests.measure import Measurement

_TONES = {
    "PASS": "good",
    "MEASURED": "good",
    "FAIL": "bad",
    "INVALID": "bad",
    "INCONCLUSIVE": "warn",
}
_HEADLINES = {
    "PASS": "PASS: every objective held",
    "MEASURED": "Measured: no objective was set",
    "FAIL": "FAIL: an objective did not hold",
    "INCONCLUSIVE": "INCONCLUSIVE: too few samples to judge",
    "INVALID": "INVALID: this run may not be believed",
}


def headline(verdict: str) -> str:
    """Return a verdict in words."""
    return _HEADLINES[verdict]


def write_report(result: dict[str, Any], measurement: Measurement, path: Path) -> None:
    """Write the page for ``result`` (the contents of report.json) to ``path``."""
    from plotly.offline import get_plotlyjs

    plots = figures(result, measurement)
    page = render(
        "loadtest.html.j2",
        package="modelops_loadtests",
        result=result,
        tone=_TONES[result["verdict"]],
        headline=headline(result["verdict"]),
        facts=_facts(result),
        command=command(result["spec"]),
        environment=_environment(result["environment"]),
        plots=plots,
        plots_json=_script_json(plots),
        plotly_js=Markup(get_plotlyjs()),  # noqa: S704 - plotly's own source, not data
    )
    path.write_text(page, encoding="utf-8")


def _script_json(value: Any) -> Markup:
    """Return JSON that no text in it can end the script element of."""
    text = orjson.dumps(value).decode()
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))  # noqa: S704 - escaped


def command(spec: dict[str, Any]) -> str:
    """Return the command line that repeats the run; the key is never part of it."""
    parts = ["modelops", "loadtest", spec["url"], "--scenario", spec["scenario"]]
    parts += ["--model", str(spec["model"]), "--users", str(spec["users"])]
    parts += ["--duration", f"{spec['duration_s']:g}s", "--warmup", f"{spec['warmup_s']:g}s"]
    parts += ["--timeout", f"{spec['timeout_s']:g}s", "--seed", str(spec["seed"])]
    parts += ["--encoding", spec["encoding"], "--batch", str(spec["batch"])]
    if spec["data"]:
        parts += ["--data", str(spec["data"])]
    for name, size in spec["dims"].items():
        parts += ["--dim", f"{name}={size}"]
    for slo in spec["slo"]:
        parts += ["--slo", slo]
    return shlex.join(parts)


def _environment(recorded: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (
            name.replace("_", " "),
            ", ".join(map(str, value)) if isinstance(value, list) else str(value),
        )
        for name, value in recorded.items()
    ]


def _ms(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.1f} ms" if value < 1000 else f"{value / 1000:,.2f} s"


def _facts(result: dict[str, Any]) -> list[tuple[str, str, str | None]]:
    figures_, window = result["summary"], result["window"]
    e2e, qps, rate = figures_["e2e_ms"], figures_["qps"], figures_["error_rate"]
    lost = f"{figures_['failed']:,} of {figures_['requests']:,} failed"
    if figures_["cut"]:
        lost += f", {figures_['cut']:,} cut"
    return [
        ("Throughput", "–" if qps is None else f"{qps:,.1f}/s", "requests without error"),
        ("p50 latency", _ms(e2e["p50"]), "end to end"),
        ("p95 latency", _ms(e2e["p95"]), "end to end"),
        ("p99 latency", _ms(e2e["p99"]), f"slowest {_ms(e2e['max'])}"),
        ("Error rate", "–" if rate is None else f"{rate:.2%}", lost),
        (
            "Measured",
            f"{window['seconds']:g} s",
            f"after {window['start_s']:g} s of warm-up",
        ),
    ]


def gate_rows(result: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return verdict, objective, measured value and detail of each gate."""
    return [
        (
            gate["verdict"],
            f"{gate['metric']} {'≤' if gate['upper'] else '≥'} {gate['bound']:g}",
            "–" if gate["value"] is None else f"{gate['value']:,.4g}",
            gate["detail"],
        )
        for gate in result["gates"]
    ]


def table(result: dict[str, Any]) -> Any:
    """Return the result as a rich renderable for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    colour = {"good": "green", "bad": "red", "warn": "yellow"}
    lines = [
        Text(headline(result["verdict"]), style=f"bold {colour[_TONES[result['verdict']]]}"),
        *(Text(f"  {reason}") for reason in result["reasons"]),
    ]
    grid = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, value, small in _facts(result):
        grid.add_row(name, Text(value, style="bold"), Text(small or "", style="dim"))
    for verdict, objective, value, detail in gate_rows(result):
        style = {"PASS": "green", "FAIL": "red"}.get(verdict, "yellow")
        grid.add_row(Text(verdict, style=style), objective, f"measured {value}; {detail}")
    for row in result["errors"][:5]:
        grid.add_row(Text(row["kind"], style="red"), f"{row['count']:,}", row["example"] or "")
    return Group(*lines, grid, Text(f"report: {result['files']['report']}"))
