"""Load a server, measure it, judge it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, SecretStr

from modelops import registry
from modelops.errors import UsageError
from modelops.progress import Progress, silent

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ms|s|m|h)?\s*\Z")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


class LoadtestRequest(BaseModel):
    """What to load, how, and what must hold. Durations are in seconds.

    ``scenario`` is one, or several by weight (``chat=3,embeddings=1``); ``model`` one for all or
    ``SCENARIO=NAME`` for each, and without one the server must have exactly one that is ready.
    The load is one of ``users`` (closed loop; 8 where nothing is said), ``rate`` (open loop,
    requests a second), ``sweep`` (``rate=1..64``, ``users=1,2,5``) and ``trace`` (a JSONL file of
    ``at``, ``input_tokens`` and ``output_tokens``). Without a ``duration_s`` a trace is replayed to
    its end, and any other load is measured for 20 s; without a ``seed`` one is drawn, so that no
    prompt of an earlier run comes again. ``slo`` are objectives such as
    ``ttft_p95_ms=300``, ``error_rate=0.001`` and ``goodput_rps=5``, or YAML files of them; ``dims``
    are sizes of dynamic dims; lengths are ``256`` or ``128..512`` tokens; ``output`` is the
    report's folder, by default a new one below ``reports``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    scenario: str
    model: str | tuple[str, ...] | None = None
    users: int | None = None
    rate: float | None = None
    arrivals: Literal["poisson", "constant", "gamma"] = "poisson"
    burstiness: float = 1.0
    sweep: str | None = None
    trace: Path | None = None
    connections: int | None = None
    processes: int = 1
    duration_s: float | None = None
    max_duration_s: float | None = None
    warmup_s: float | None = None
    ramp_s: float = 0.0
    timeout_s: float = 30.0
    drain_s: float | None = None
    slo: tuple[str, ...] = ()
    baseline: Path | None = None
    max_regression: tuple[str, ...] = ()
    data: Path | None = None
    encoding: Literal["json", "binary"] = "json"
    batch: int = 1
    dims: tuple[str, ...] = ()
    input_tokens: str | None = None
    output_tokens: str | None = None
    shared_prefix: float = 0.0
    turns: int = 1
    think_s: float = 0.0
    tokenizer: Path | None = None
    temperature: float | None = None
    stream: bool = True
    ignore_eos: bool | None = None
    seed: int | None = None
    calibrate: bool = True
    metrics_url: str | None = None
    server_metrics: bool = True
    output: Path | None = None
    api_key: SecretStr | None = None


class LoadtestResult(BaseModel):
    """The verdict and where it is written; ``report`` is the contents of report.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Literal["PASS", "MEASURED", "FAIL", "INCONCLUSIVE", "INVALID"]
    exit_code: int
    folder: Path
    report: dict[str, Any]


Watch = Callable[[Mapping[str, Any]], None]
"""Called twice a second with what is known so far: see ``live``."""


def loadtest(
    request: LoadtestRequest, progress: Progress = silent, watch: Watch | None = None
) -> LoadtestResult:
    """Run a load test and write its report.

    Raises:
        UsageError: an option, an objective or the choice of model cannot be meant.
        InputError: the data, the key or the model is not right.
        MissingEnvironmentError: the extra ``loadtest`` is not installed.
        MeasurementError: nothing was measured.
    """
    run = registry.load("modelops_loadtests.runner:run", extra="loadtest")
    report: dict[str, Any] = run(request.model_dump(), progress, watch)
    return LoadtestResult(
        verdict=report["verdict"],
        exit_code=report["exit_code"],
        folder=Path(report["files"]["folder"]),
        report=report,
    )


def live() -> Any:
    """Return a small table on stderr that follows a run: a context manager.

    Called with a phrase it is a ``Progress``; its ``update`` is a ``Watch``.
    """
    return registry.load("modelops_loadtests.report:Live", extra="loadtest")()


def table(result: LoadtestResult) -> Any:
    """Return the result as a rich renderable for a terminal."""
    return registry.load("modelops_loadtests.report:table", extra="loadtest")(result.report)


def seconds(text: str) -> float:
    """Read a duration: ``20s``, ``500ms``, ``2m``, ``1h``, or a bare number of seconds.

    Raises:
        UsageError: the text is not of this form.
    """
    match = _DURATION.match(text)
    if match is None:
        raise UsageError(f"cannot read {text!r} as a duration", hint='such as "20s" or "500ms"')
    return float(match[1]) * _UNITS[match[2] or "s"]
