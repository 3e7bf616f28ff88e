"""One load test from request to result: look first, run, measure, judge, report."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from modelops import __version__, registry
from modelops.errors import InputError, MeasurementError, MissingEnvironmentError
from modelops.progress import Progress, silent
from modelops_loadtests import gates, report, validity
from modelops_loadtests.generator import generate
from modelops_loadtests.measure import (
    Measurement,
    Window,
    errors,
    measure,
    measured,
    summary,
    throughput,
)
from modelops_loadtests.preflight import http_get, key_headers, resolve_model
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.spec import RunSpec

SCHEMA_VERSION = 1
EXIT_CODES = {"PASS": 0, "MEASURED": 0, "FAIL": 6, "INCONCLUSIVE": 7, "INVALID": 7}


def run(options: Mapping[str, Any], progress: Progress = silent) -> dict[str, Any]:
    """Run one load test; ``options`` are the fields of ``RunSpec``.

    Returns the contents of report.json: see ``_result``. Its ``verdict`` is PASS, FAIL, INVALID
    (the run may not be believed), INCONCLUSIVE (too few samples) or MEASURED (no gate was asked
    for), its ``exit_code`` what a command should end with. The report is written wherever a
    request was sent.

    Raises:
        UsageError: an option, an objective or the choice of model cannot be meant.
        InputError: the data, the key or the model is not right.
        MeasurementError: nothing was measured: the server cannot be reached, or no request ended.
        MissingEnvironmentError: locust is not installed.
    """
    spec = RunSpec.checked(options)
    asked = gates.parse(spec.slo)
    if find_spec("locust") is None:
        raise MissingEnvironmentError(
            "locust is not installed here", hint='pip install "modelops[loadtest]"'
        )
    spec = _looked_at(spec, progress)
    folder = _folder(spec)
    progress(f"starting {spec.concurrency} users against {spec.url}")
    told = generate(spec, folder, progress)
    samples = SampleTable.read(folder / "samples.jsonl")
    end = told["ended_s"] if told["interrupted"] else spec.warmup_s + spec.duration_s
    measurement = measure(samples, Window(min(spec.warmup_s, end), end))
    if len(samples) == 0:
        raise MeasurementError(
            "nothing was measured: no request ended", hint=f"see {folder / 'loadgenerator.log'}"
        )
    result = _result(spec, asked, told, measurement, folder)
    progress("writing the report")
    report.write(result, samples, folder)
    (folder / "report.json").write_bytes(
        orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    )
    return result


def _looked_at(spec: RunSpec, progress: Progress) -> RunSpec:
    """Find the model and let the scenario read what it needs, before a process is started."""
    scenario = registry.resolve("scenarios", spec.scenario)
    progress(f"looking at {spec.url}")
    key = spec.api_key.get_secret_value() if spec.api_key else None
    get = http_get(spec.url, key_headers(key), timeout=min(10.0, spec.timeout_s))
    model = resolve_model(get, spec.model)
    scenario.prepare(
        Settings(model, spec.data, spec.encoding, spec.batch, dict(spec.dims), spec.seed), get
    )
    return spec.model_copy(update={"model": model})


def _folder(spec: RunSpec) -> Path:
    """Make the report's folder; a default name that is taken gets a number.

    A folder that was named may hold an earlier report of this tool, which is replaced.
    """
    try:
        if spec.output is not None:
            spec.output.mkdir(parents=True, exist_ok=True)
            return spec.output
        stem = f"{spec.scenario}-{datetime.now():%Y%m%d-%H%M%S}"
        for number in range(1, 1000):
            folder = Path("reports") / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise InputError(
            f"cannot make the report's folder: {error}", hint="choose one with -o"
        ) from error
    raise InputError(f"reports/{stem} and 998 more are taken", hint="choose one with -o")


def _result(
    spec: RunSpec,
    asked: tuple[gates.Gate, ...],
    told: Mapping[str, Any],
    measurement: Measurement,
    folder: Path,
) -> dict[str, Any]:
    """Assemble report.json."""
    figures = summary(measurement)
    judged = [gates.judge(gate, measured(measurement)) for gate in asked]
    invalid = _invalid(spec, told, measurement, judged, figures["e2e_ms"]["p50"])
    verdict = "INVALID" if invalid else gates.overall(judged) or "MEASURED"
    window = measurement.window
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "loadtest",
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "reasons": invalid or [report.reason(asdict(g)) for g in judged if g.verdict != "PASS"],
        "gates": [asdict(g) for g in judged],
        "summary": figures,
        "errors": errors(measurement),
        "throughput": throughput(measurement, _step(window.seconds)),
        "window": {
            "start_s": window.start,
            "end_s": window.end,
            "seconds": window.seconds,
            "warmup_requests_excluded": measurement.excluded,
            "drained_after_s": max(0.0, told["drained_s"] - told["ended_s"]),
            "interrupted": told["interrupted"],
        },
        "client": dict(told["client"]),
        "bounds": {
            "cpu_share": validity.MAX_CPU_SHARE,
            "lag_p99_ms": validity.lag_bound_ms(figures["e2e_ms"]["p50"]),
        },
        "spec": spec.model_dump(mode="json"),
        "started_at": datetime.fromtimestamp(told["started_at"], UTC).isoformat(timespec="seconds"),
        "written_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds"),
        "environment": _environment(),
        "command": report.command(spec.model_dump(mode="json")),
        "files": {
            "folder": str(folder),
            "report": str(folder / "report.html"),
            "json": str(folder / "report.json"),
            "samples": str(folder / "samples.jsonl"),
            "log": str(folder / "loadgenerator.log"),
        },
    }


def _invalid(
    spec: RunSpec,
    told: Mapping[str, Any],
    measurement: Measurement,
    judged: list[gates.GateResult],
    p50: float | None,
) -> list[str]:
    """Return why the run may not be believed."""
    if told["interrupted"]:
        lasted = measurement.window.seconds
        return [f"interrupted after {lasted:.1f} s of {spec.duration_s:g} s"]
    ok = len(measurement.ok)
    # A failing error rate is itself measured where the server answered at all.
    proven = measurement.answered and any(
        g.metric == "error_rate" and g.verdict == "FAIL" for g in judged
    )
    if ok == 0 and not proven:
        if measurement.failed:
            worst = errors(measurement)[0]
            why = f"{measurement.failed} failed, most with {worst['kind']} ({worst['example']})"
        elif measurement.cut:
            why = f"{measurement.cut} were still without a reply when waiting ended"
        else:
            why = "none was sent after the warm-up: replies take longer than the run"
        return [f"no request succeeded: {why}"]
    return validity.problems(told["client"], p50)


def _step(seconds: float) -> float:
    """Return the width of the throughput plot's steps: about forty of them, of a round length."""
    return next((s for s in (0.25, 0.5, 1, 2, 5, 10, 30) if seconds / s <= 60), 60.0)


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
