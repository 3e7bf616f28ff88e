"""One stage's samples turned into figures and a verdict: first whether it may be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from modelops_loadtests import gates as judging
from modelops_loadtests import validity
from modelops_loadtests.client_health import merged
from modelops_loadtests.comparison import Run
from modelops_loadtests.definitions import latency_bounds
from modelops_loadtests.generator import StageEnd
from modelops_loadtests.load.arrivals import Schedule
from modelops_loadtests.measure import Measurement, Window, errors, measure, measured, summary
from modelops_loadtests.samples import SampleTable
from modelops_loadtests.spec import RunSpec


@dataclass(frozen=True)
class Judged:
    """What one stage came to. ``invalid`` says why it may not be believed."""

    end: StageEnd
    measurement: Measurement
    summary: dict[str, Any]
    client: dict[str, Any]
    gates: tuple[judging.GateResult, ...]
    invalid: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """INVALID, else that of the gates; MEASURED where there are none."""
        return "INVALID" if self.invalid else judging.overall(self.gates) or "MEASURED"


@dataclass(frozen=True)
class Asked:
    """What is judged by: the spec, its objectives, and how often a run may be judged.

    ``limits`` are on the change from ``baseline``, where there is one.
    """

    spec: RunSpec
    gates: tuple[judging.Gate, ...]
    looks: int = 1
    limits: tuple[judging.Regression, ...] = ()
    baseline: Run | None = None

    @property
    def bounds(self) -> dict[str, float]:
        """The latency objectives that goodput is of: timing → seconds."""
        return latency_bounds({gate.metric: gate.bound for gate in self.gates if gate.upper})

    def results(self, measurement: Measurement) -> tuple[judging.GateResult, ...]:
        """Judge every gate, and every limit on a change."""
        if not self.gates and not self.limits:
            return ()
        found = measured(measurement, self.bounds)
        results = [judging.judge(gate, found, looks=self.looks) for gate in self.gates]
        if self.before is not None:
            results += [
                judging.judge_regression(limit, found, self.before, looks=self.looks)
                for limit in self.limits
            ]
        return tuple(results)

    @cached_property
    def before(self) -> judging.Measured | None:
        """What the baseline measured."""
        return None if self.baseline is None else self.baseline.measured(self.bounds)


def judge_stage(
    asked: Asked, end: StageEnd, samples: SampleTable, schedule: Schedule | None
) -> Judged:
    """Judge one stage; ``samples`` are of the whole run, ``schedule`` of an open loop's stage."""
    stage = end.stage
    finish = end.ended_s
    window = Window(min(stage.window_start, finish), finish)
    measurement = measure(samples.where(samples["stage"] == stage.number), window)
    client = {
        **merged(end.clients),
        **_of_samples(measurement),
        "rate": _rate(asked.spec, end, measurement, schedule),
        "tokens": validity.tokens_told(measurement.inside),
    }
    if asked.spec.connections is not None:
        # Waiting for one of few connections was asked for: it is not the generator's lateness.
        client["queued_p99_ms"] = client.get("dispatch_lag_p99_ms")
    results = asked.results(measurement)
    figures = summary(measurement, asked.bounds)
    invalid = _invalid(end, measurement, results, client, figures)
    return Judged(end, measurement, figures, client, results, tuple(invalid))


def _of_samples(measurement: Measurement) -> dict[str, Any]:
    """Return what the samples say of the client itself."""
    inside = measurement.inside
    chunks = len(inside.chunks)
    queued = (inside["sent"] - inside["scheduled"]) * 1000
    answered = ~np.isnan(inside["first_byte"])
    stamps = {name for name, known in zip(inside.texts["stamps"], answered, strict=True) if known}
    return {
        "read_lag_p50_ms": _at(inside["read_lag_mean"] * 1000, 50),
        "read_lag_p99_ms": _at(inside["read_lag_max"] * 1000, 99),
        "send_lag_p99_ms": _at(inside["send_lag"] * 1000, 99),
        "queued_p99_ms": _at(queued, 99),
        "coalesced_share": float(inside["coalesced"].sum() / chunks) if chunks else None,
        "stamps": stamps.pop() if len(stamps) == 1 else "mixed" if stamps else None,
    }


def _at(values: Any, percent: float) -> float | None:
    known = values[~np.isnan(values)]
    return round(float(np.percentile(known, percent)), 3) if len(known) else None


def _rate(
    spec: RunSpec, end: StageEnd, measurement: Measurement, schedule: Schedule | None
) -> dict[str, float] | None:
    """Return what an open loop asked for, what its schedule held, and what was delivered.

    A Poisson process does not keep its rate to the request: delivered is held against the
    schedule. It is of requests sent; where connections are few, or an arrival is a conversation of
    several, of arrivals that were dispatched.
    """
    window, stage = measurement.window, end.stage
    if schedule is None or window.seconds <= 0:
        return None
    due = schedule.count(window.start - stage.start, window.end - stage.start)
    delivered: float | None
    if spec.connections is None and spec.turns == 1:
        delivered = validity.delivered(measurement.inside, due, window.seconds)
    else:
        delivered = sum(client["dispatched"] for client in end.clients) / window.seconds
    if delivered is None:
        return None
    scheduled = due / window.seconds
    asked = scheduled if stage.axis == "trace" else stage.load
    return {"asked": asked, "scheduled": scheduled, "delivered": delivered}


def _invalid(
    end: StageEnd,
    measurement: Measurement,
    results: Sequence[judging.GateResult],
    client: Mapping[str, Any],
    figures: Mapping[str, Any],
) -> list[str]:
    """Return why the stage may not be believed."""
    stage = end.stage
    if end.died:
        return [*end.died, "what the others sent is not the load that was asked for"]
    if end.interrupted:
        planned = stage.until - stage.window_start
        return [f"interrupted after {measurement.window.seconds:.1f} s of {planned:g} s"]
    # A failing error rate is itself measured where the server answered at all.
    proven = measurement.answered and any(
        r.metric == "error_rate" and r.verdict == "FAIL" for r in results
    )
    if len(measurement.ok) == 0 and not proven:
        if measurement.failed:
            worst = errors(measurement)[0]
            why = f"{measurement.failed} failed, most with {worst['kind']} ({worst['example']})"
        elif measurement.cut:
            why = f"{measurement.cut} were still without a reply when waiting ended"
        else:
            why = "none was sent after the warm-up: replies take longer than the run"
        return [f"no request succeeded: {why}"]
    return validity.problems(client, figures)
