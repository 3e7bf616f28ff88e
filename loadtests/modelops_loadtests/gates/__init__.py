"""Service level objectives: what may be gated, how a gate is written, and how it is judged."""

from modelops_loadtests.gates.going_on import Undecided, undecided
from modelops_loadtests.gates.judging import (
    GateResult,
    GateVerdict,
    Interval,
    Measured,
    judge,
    overall,
)
from modelops_loadtests.gates.objectives import Gate, parse
from modelops_loadtests.gates.regressions import Regression, judge_regression, parse_regressions

__all__ = [
    "Gate",
    "GateResult",
    "GateVerdict",
    "Interval",
    "Measured",
    "Regression",
    "Undecided",
    "judge",
    "judge_regression",
    "overall",
    "parse",
    "parse_regressions",
    "undecided",
]
