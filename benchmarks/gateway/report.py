"""The terminal's tables and the JSON file of one run."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from gateway.artifacts import RESULTS
from gateway.contenders import FASTAPI_EXECUTOR
from gateway.targets import Outcome, Runs, pairs

_NARROWEST = 120
_BUSY_SHARE = 0.5

console = Console(highlight=False)
if console.width < _NARROWEST:  # a table that wraps within words says nothing
    console = Console(highlight=False, width=_NARROWEST)


def machine() -> str:
    """The machine in a few words, and whether others use it."""
    cores, load = psutil.cpu_count() or 1, psutil.getloadavg()[0]
    words = f"{cores} cores, {platform.system()} {platform.machine()}, "
    words += f"Python {platform.python_version()}, load average {load:.1f} before"
    return words + ("; BUSY: the numbers say little" if load > cores * _BUSY_SHARE else "")


def show_versions(found: dict[str, dict[str, str]], wrk_version: str, where: str) -> None:
    """One line for each environment."""
    console.print(f"wrk {wrk_version}; {where}")
    for name, packages in found.items():
        console.print(f"  {name}: " + ", ".join(f"{p} {v}" for p, v in packages.items()))


def show_runs(title: str, runs: Runs, names: Sequence[str]) -> None:
    """Medians of one scenario's rounds at one number of connections; ratios within rounds."""
    scenario, connections = runs[0]["scenario"], runs[0]["connections"]
    table = table_of(
        title, "contender", "requests/s", "spread", "× FastAPI exec.", "p50 ms", "p99 ms",
        "CPU µs/request", "mean batch",
    )  # fmt: skip
    for name in names:
        own = [run for run in runs if run["contender"] == name]
        good = [run for run in own if run["valid"]]
        if not good:
            if own:
                errors = sum(run["errors"] for run in own)
                why = f"{errors:,} errors" if errors else "no answer in time"
                table.add_row(name, "INVALID", why)
            continue
        rates = [run["rps"] for run in good]
        both = pairs(runs, scenario, connections, name, FASTAPI_EXECUTOR, "rps")
        table.add_row(
            name,
            f"{statistics.median(rates):,.0f}",
            f"{min(rates):,.0f}–{max(rates):,.0f}",
            f"{statistics.median(a / b for a, b in both):.2f}" if both else "",
            *(_milliseconds(good, key) for key in ("p50_us", "p99_us")),
            _median(good, "cpu_us", "{:,.0f}"),
            _median(good, "mean_batch", "{:.1f}"),
        )
        if len(good) < len(own):
            table.add_row("", f"{len(own) - len(good)} of {len(own)} INVALID")
    console.print(table)


def show_outcomes(found: Sequence[Outcome]) -> None:
    """The promises beside what was measured."""
    table = table_of("targets", "model", "clients", "target", "measured", "spread", "by CPU", "")
    for outcome in found:
        digits = "{:,.0f}" if "µs" in outcome.text else "{:.2f}"
        shown = [
            "" if v is None else digits.format(v)
            for v in (outcome.measured, outcome.low, outcome.high)
        ]
        table.add_row(
            outcome.scenario,
            str(outcome.connections),
            outcome.text,
            shown[0],
            f"{shown[1]}–{shown[2]}" if shown[1] else "",
            "" if outcome.by_cpu is None else f"{outcome.by_cpu:.2f}",
            outcome.word,
        )
    console.print(table)


def save(name: str, content: dict[str, Any]) -> Path:
    """Write one run's numbers under benchmarks/results/."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(content, indent=1, default=asdict))
    return path


def table_of(title: str, *columns: str) -> Table:
    """An empty table; columns of words stand left, columns of numbers right."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.padding = (0, 2, 0, 0)
    for column in columns:
        words = column in ("contender", "target", "model", "", "what", "figure")
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    return table


def _median(runs: Runs, key: str, form: str) -> str:
    values = [run[key] for run in runs if run.get(key) is not None]
    return form.format(statistics.median(values)) if values else ""


def _milliseconds(runs: Runs, key: str) -> str:
    values = [run[key] / 1000 for run in runs if key in run]
    return f"{statistics.median(values):.2f}" if values else ""
