"""The schedule of a stage: the same in every process that sends, and in the one that judges."""

from __future__ import annotations

from modelops_loadtests.load.arrivals import Schedule, arrivals
from modelops_loadtests.load.stage import Stage
from modelops_loadtests.load.trace import read_trace
from modelops_loadtests.spec import RunSpec


def schedule_of(spec: RunSpec, stage: Stage) -> Schedule | None:
    """Return the whole schedule of a stage, from its start; None for a closed loop."""
    if stage.axis == "users":
        return None
    if stage.axis == "trace":
        assert spec.trace is not None  # noqa: S101
        return read_trace(spec.trace)
    return arrivals(
        stage.load,
        stage.limit - stage.start,
        kind=spec.arrivals,
        burstiness=spec.burstiness,
        seed=spec.seed,
        stage=stage.number,
        ramp=stage.ramp,
    )
