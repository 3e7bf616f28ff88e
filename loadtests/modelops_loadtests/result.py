"""report.json: everything that a run came to, by name, for programs and for the report."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from modelops import __version__
from modelops_loadtests import gates, report, validity
from modelops_loadtests.gates.percentiles import percentile_interval
from modelops_loadtests.gates.series import timing_series
from modelops_loadtests.judged import Judged
from modelops_loadtests.load.sweep import StageSeen, Sweep, highest_within, knee, over
from modelops_loadtests.measure import PERCENTILES, errors, throughput
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.spec import RunSpec

SCHEMA_VERSION = 2
EXIT_CODES = {"PASS": 0, "MEASURED": 0, "FAIL": 6, "INCONCLUSIVE": 7, "INVALID": 7}
_STEPS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


def assemble(
    spec: RunSpec,
    done: Sequence[Judged],
    seen: Sequence[StageSeen],
    *,
    started_at: float,
    folder: Path,
    extensions: Sequence[Mapping[str, Any]],
    calibration: Mapping[str, Any] | None,
    server_metrics: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Return the contents of report.json.

    Of a sweep, the figures at the top are those of one stage: the highest load within the
    objectives, else (without objectives) the knee, or the highest where it was not reached, else
    the first that may be believed; ``window.stage`` says which.
    """
    head = _headline(spec.sweep, done, seen)
    verdict = _verdict(spec.sweep, done, head)
    measurement, end = head.measurement, head.end
    window, stage = measurement.window, end.stage
    dumped = spec.model_dump(mode="json")
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "loadtest",
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "reasons": _reasons(verdict, done, head),
        "gates": [asdict(g) for g in head.gates],
        "summary": head.summary,
        "intervals": _intervals(measurement.inside),
        "errors": errors(measurement),
        "throughput": throughput(measurement, _step(window.seconds, len(measurement.completed))),
        "window": {
            "stage": stage.number,
            "start_s": window.start,
            "end_s": window.end,
            "seconds": window.seconds,
            "ramp_s": stage.ramp,
            "warmup_s": stage.warmup,
            "warmup_requests_excluded": measurement.excluded,
            "drained_after_s": max(0.0, end.drained_s - end.ended_s),
            "interrupted": end.interrupted,
        },
        "extensions": list(extensions),
        "client": head.client,
        "calibration": None if calibration is None else dict(calibration),
        "bounds": validity.bounds(head.client, head.summary),
        **_swept(spec.sweep, done, seen),
        "server_metrics": None if server_metrics is None else dict(server_metrics),
        "spec": dumped,
        "started_at": datetime.fromtimestamp(started_at, UTC).isoformat(timespec="seconds"),
        "written_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        "environment": _environment(),
        "command": report.command(dumped),
        "files": {
            "folder": str(folder),
            "report": str(folder / "report.html"),
            "json": str(folder / "report.json"),
            "markdown": str(folder / "report.md"),
            "samples": str(folder / "samples.parquet"),
            "log": str(folder / "loadgenerator.log"),
        },
    }


def _headline(sweep: Sweep | None, done: Sequence[Judged], seen: Sequence[StageSeen]) -> Judged:
    if sweep is None:
        return done[0]
    chosen = highest_within(seen)
    if chosen is None and not any(judged.gates for judged in done):
        chosen = knee(sweep, seen)
    if chosen is None:
        return next((judged for judged in done if not judged.invalid), done[0])
    if chosen["load"] is None:
        return max((j for j in done if not j.invalid), key=lambda j: j.end.stage.load)
    loads = [judged.end.stage.load for judged in done]
    return done[loads.index(chosen["load"])]


def _verdict(sweep: Sweep | None, done: Sequence[Judged], head: Judged) -> str:
    """Return the run's verdict.

    A sweep is meant to go beyond what the server can: it passes where some load met the
    objectives. One that was interrupted may not be believed as a whole.
    """
    last = done[-1].end
    return "INVALID" if sweep is not None and (last.interrupted or last.died) else head.verdict


def _reasons(verdict: str, done: Sequence[Judged], head: Judged) -> list[str]:
    if verdict == "INVALID":
        return [*(head.invalid or done[-1].invalid)]
    found = [report.reason(asdict(g)) for g in head.gates if g.verdict != "PASS"]
    if (still := gates.undecided(head.gates)) is not None and head.end.stage.axis != "trace":
        found.append(report.longer(still.factor * head.measurement.window.seconds))
    return found


def _swept(
    sweep: Sweep | None, done: Sequence[Judged], seen: Sequence[StageSeen]
) -> dict[str, Any]:
    if sweep is None:
        return {"sweep": [], "knee": None, "highest_within_slo": None, "sweep_ended": None}
    rows = []
    for judged, stage in zip(done, seen, strict=True):
        rows.append(
            {
                "stage": judged.end.stage.number,
                "asked": stage.load,
                "offered": stage.offered,
                "delivered": stage.throughput,
                "start_s": judged.measurement.window.start,
                "end_s": judged.measurement.window.end,
                "summary": judged.summary,
                "gates": [asdict(g) for g in judged.gates],
                "verdict": judged.verdict,
                "reasons": list(judged.invalid),
                "client": {k: v for k, v in judged.client.items() if k != "series"},
            }
        )
    return {
        "sweep": rows,
        "knee": knee(sweep, seen),
        "highest_within_slo": highest_within(seen),
        "sweep_ended": over(sweep, seen),
    }


def _intervals(inside: SampleTable) -> dict[str, dict[str, list[float | None]]]:
    """Return the confidence interval of each percentile, in milliseconds; None: no such bound."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for timing, series in timing_series(inside).items():
        if not len(series):
            continue
        ordered = np.sort(series)
        row = {}
        for percent in PERCENTILES:
            near = percentile_interval(series, percent, ordered=ordered)
            row[f"p{percent:g}"] = [
                float(x) * 1000 if np.isfinite(x) else None for x in (near.low, near.high)
            ]
        found[f"{timing}_ms"] = row
    return found


def _step(seconds: float, done: int) -> float:
    """Return the width of the throughput plot's steps, of a round length.

    There are four to sixty, with ten requests in a step where they suffice: fewer would draw
    nothing but chance.
    """
    enough = [s for s in _STEPS if 4 <= seconds / s <= 60 and done * s >= 10 * seconds]
    return min(enough, default=max(seconds / 4, _STEPS[0]))


def _environment() -> dict[str, Any]:
    return {
        "modelops": __version__,
        "locust": version("locust"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
    }
