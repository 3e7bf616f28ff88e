"""One load test from request to result: look first, run, measure, judge, report."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson

from modelops.errors import MeasurementError, MissingEnvironmentError
from modelops.progress import Progress, silent
from modelops_loadtests import calibration, gates, report
from modelops_loadtests.comparison import Run, baseline
from modelops_loadtests.folder import make_folder
from modelops_loadtests.generator import Generator
from modelops_loadtests.judged import Asked
from modelops_loadtests.preflight import key_headers, look
from modelops_loadtests.result import assemble
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.server_metrics import ServerMetrics
from modelops_loadtests.spec import RunSpec
from modelops_loadtests.stages import Stages, looks, resolved

Watch = Callable[[Mapping[str, Any]], None]
"""Called twice a second with what the load generator tells: see ``report.Live``."""


def run(
    options: Mapping[str, Any], progress: Progress = silent, watch: Watch | None = None
) -> dict[str, Any]:
    """Run one load test; ``options`` are the fields of ``RunSpec``.

    Returns the contents of report.json: see ``result.assemble``. Its ``verdict`` is PASS, FAIL,
    INVALID (the run may not be believed), INCONCLUSIVE (too few samples) or MEASURED (no gate was
    asked for), its ``exit_code`` what a command should end with. The report is written wherever a
    request was sent.

    Raises:
        UsageError: an option, an objective or the choice of model cannot be meant.
        InputError: the data, the key or the model is not right.
        MeasurementError: nothing was measured: the server cannot be reached, or no request ended.
        MissingEnvironmentError: locust is not installed.
    """
    spec = resolved(RunSpec.checked(options))
    asked_gates = gates.parse(spec.slo)
    limits = gates.parse_regressions(spec.max_regression)
    if find_spec("locust") is None:
        raise MissingEnvironmentError(
            "locust is not installed here", hint='pip install "modelops[loadtest]"'
        )
    spec = look(spec, progress)
    before = _baseline(spec, progress)
    folder = make_folder(spec)
    progress(f"starting against {spec.url}")
    started_at = time.time()
    with tempfile.TemporaryDirectory(prefix="modelops-loadtest-") as private:
        with (
            Generator(spec, folder, Path(private), watch=watch) as generator,
            _metrics(spec) as metrics,
        ):
            asked = Asked(spec, asked_gates, looks(spec), limits, before)
            stages = Stages(asked, generator, progress)
            stages.run()
            seen_there = None if metrics is None else metrics.result(generator.zero)
        samples = SampleTable.read(*generator.samples)
    if watch is not None:
        watch({})  # what follows is no longer the run
    if len(samples) == 0:
        raise MeasurementError(
            "nothing was measured: no request ended", hint=f"see {generator.log}"
        )
    result = assemble(
        spec,
        stages.done,
        stages.seen,
        started_at=started_at,
        folder=folder,
        extensions=stages.extensions,
        calibration=_calibrated(spec, stages, progress),
        server_metrics=seen_there,
    )
    progress("writing the report")
    _write(result, samples, folder)
    return result


def _write(result: Mapping[str, Any], samples: SampleTable, folder: Path) -> None:
    """Write all of a run, report.json last: never beside the samples of another one."""
    told = folder / "report.json"
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        told.unlink(missing_ok=True)
        samples.write_parquet(folder / "samples.parquet")
        report.write(result, samples, folder)
        told.with_suffix(".json.part").write_bytes(text)
        told.with_suffix(".json.part").replace(told)
    except OSError as error:
        raise MissingEnvironmentError(
            f"the run ended {result['verdict']}, but its report cannot be written to {folder}: "
            f"{error}",
            hint="choose another folder with -o",
        ) from error


def _baseline(spec: RunSpec, progress: Progress) -> Run | None:
    if spec.baseline is None:
        return None
    run, notes = baseline(spec.baseline, spec.model_dump(mode="json"))
    for note in notes:
        progress(note)
    return run


def _calibrated(spec: RunSpec, stages: Stages, progress: Progress) -> dict[str, Any] | None:
    """Return the client's error with as many streams as there were; None where there was none.

    It is measured after the run, when it is known how many they were, and never beside it.
    """
    last = stages.done[-1].end
    inside = stages.done[-1].measurement.inside
    if not spec.calibrate or last.interrupted or last.died or not len(inside.chunks):
        return None
    seconds = stages.done[-1].measurement.window.seconds
    at_once = float((inside["end"] - inside["sent"]).sum()) / seconds
    try:
        return calibration.bound(
            max(1, round(at_once)), processes=spec.processes, progress=progress
        )
    except KeyboardInterrupt:
        # The run itself is over, and is kept.
        progress("stopping; the run is kept, without a calibration")
        return None


def _metrics(spec: RunSpec) -> contextlib.AbstractContextManager[ServerMetrics | None]:
    if not spec.server_metrics:
        return contextlib.nullcontext()
    key = spec.api_key.get_secret_value() if spec.api_key else None
    return ServerMetrics(spec.metrics_url or f"{spec.url}/metrics", key_headers(key))
