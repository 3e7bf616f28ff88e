"""A load test that has been run, read back: its report and every sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import orjson

from modelops.errors import InputError
from modelops_loadtests.comparison import recorded
from modelops_loadtests.definitions import latency_bounds
from modelops_loadtests.gates.judging import Measured
from modelops_loadtests.measure import Measurement, Window, measure, measured, summary
from modelops_loadtests.samples import SampleTable

SCHEMA_VERSION = 2
_WORKLOAD = ("scenario", "model", "models")
_LOAD = (
    *("users", "rate", "arrivals", "burstiness", "sweep", "trace", "connections", "turns"),
    *("think_s", "data", "encoding", "batch", "dims", "input_tokens", "output_tokens"),
    *("shared_prefix", "temperature", "timeout_s"),
)
_MACHINE = ("cpus", "system", "modelops")
_MISSING = object()


@dataclass(frozen=True)
class Run:
    """One run; ``report`` is the contents of its report.json, ``path`` its folder."""

    path: Path
    report: Mapping[str, Any]
    samples: SampleTable

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run from its folder, or from its report.json with the samples beside it.

        Raises:
            InputError: it is no such run, was written by another version, is a sweep (which has no
                one load), or its raw samples are not there, or are not its own.
        """
        file = path / "report.json" if path.is_dir() else path
        try:
            report = orjson.loads(file.read_bytes())
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} is no load test's report: {error}",
                hint="name a report's folder, or the report.json in it",
            ) from error
        if not isinstance(report, dict) or report.get("kind") != "loadtest":
            raise InputError(f"{file} is no load test's report")
        if report.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"{file} has schema version {report.get('schema_version')}, not {SCHEMA_VERSION}",
                hint="measure it again with this version of modelops",
            )
        recorded.check(file, report)
        if report["spec"].get("sweep"):
            raise InputError(
                f"{file} is of a sweep, whose loads have one latency each",
                hint="compare runs at one load: --users or --rate",
            )
        run = cls(file.parent, report, _samples(file, report))
        if _outline(summary(run.measurement)) != _outline(report["summary"]):
            # Such as a report.json that was copied away, and whose folder holds a later run now.
            raise InputError(
                f"the raw samples of {file} are of another run",
                hint="keep samples.parquet beside its report.json",
            )
        return run

    @property
    def name(self) -> str:
        """What to call it: its folder."""
        return self.path.resolve().name

    @property
    def is_invalid(self) -> bool:
        """Whether it may not be believed."""
        return bool(self.report["verdict"] == "INVALID")

    @cached_property
    def measurement(self) -> Measurement:
        """The samples of the time that was measured."""
        window = self.report["window"]
        samples = self.samples
        if "stage" in window:
            samples = samples.where(samples["stage"] == window["stage"])
        return measure(samples, Window(window["start_s"], window["end_s"]))

    @property
    def bounds(self) -> dict[str, float]:
        """Its latency objectives, which its goodput is of: timing → seconds."""
        gates = self.report["gates"]
        return latency_bounds({g["metric"]: g["bound"] for g in gates if g["upper"]})

    def measured(self, bounds: Mapping[str, float]) -> Measured:
        """Return what it is judged on; ``bounds`` are the latency objectives of goodput."""
        return measured(self.measurement, bounds)


def _outline(told: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what tells two runs apart."""
    mean = told["e2e_ms"]["mean"]
    counts = (told[name] for name in ("requests", "ok", "failed", "cut"))
    return (*counts, None if mean is None else f"{mean:.6g}")


def _samples(file: Path, report: Mapping[str, Any]) -> SampleTable:
    beside = file.with_name("samples.parquet")
    written = Path(str(report["files"]["samples"]))
    found = next((p for p in (beside, written) if p.is_file()), None)
    if found is None:
        raise InputError(
            f"{file} is without its raw samples, which every interval is computed from",
            hint="keep samples.parquet beside it",
        )
    try:
        return SampleTable.read_parquet(found)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {found}: {error}") from error


def baseline(path: Path, spec: Mapping[str, Any]) -> tuple[Run, list[str]]:
    """Read the run that a run of ``spec`` is held against, and what differs but may.

    Raises:
        InputError: it cannot be read, is INVALID, or is of another scenario or model.
    """
    run = Run.read(path)
    if run.is_invalid:
        raise InputError(
            f"the baseline {path} is INVALID: {'; '.join(run.report['reasons'][:3])}",
            hint="measure it again",
        )
    if others := unlike(run.report["spec"], spec, _WORKLOAD):
        raise InputError(
            f"the baseline {path} is of another workload: {'; '.join(others)}",
            hint="a baseline is the same scenario and model",
        )
    return run, [
        f"the baseline has another load: {o}" for o in unlike(run.report["spec"], spec, _LOAD)
    ]


def unlike(a: Mapping[str, Any], b: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """Return where two specs differ, in words."""
    found = []
    for key in keys:
        first, second = a.get(key, _MISSING), b.get(key, _MISSING)
        if _MISSING not in (first, second) and first != second:
            name = key.removesuffix("_s").replace("_", " ")
            found.append(f"{name} {_said(first)} and {_said(second)}")
    return found


def _said(value: Any) -> str:
    return "not set" if value in (None, {}, []) else str(value)


def warnings(a: Sequence[Run], b: Sequence[Run]) -> list[str]:
    """Return what else than what is compared differs between two sets, or inside of one."""
    found = []
    first = a[0]
    for run in (*a[1:], *b):
        spec = unlike(first.report["spec"], run.report["spec"], (*_WORKLOAD, *_LOAD))
        machine = unlike(first.report["environment"], run.report["environment"], _MACHINE)
        found += [f"{first.name} and {run.name} differ in {what}" for what in (*spec, *machine)]
    return found
