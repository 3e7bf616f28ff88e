"""Each figure of A beside that of B: what differs, by how much, and whether that is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

from modelops.errors import UsageError
from modelops_loadtests import gates
from modelops_loadtests.comparison.run import Run, warnings
from modelops_loadtests.definitions import LOWER_BOUNDED, TIMINGS
from modelops_loadtests.gates import GateResult, Measured, Regression
from modelops_loadtests.gates.figures import ends, figure
from modelops_loadtests.gates.judging import missing
from modelops_loadtests.gates.percentiles import ALPHA, Bounded
from modelops_loadtests.gates.ratios import difference, mean_of_runs, ratio, ratio_of_runs
from modelops_loadtests.gates.regressions import is_of_difference, judge_regression, of_runs

SCHEMA_VERSION = 1
CONFIDENCE = 0.95
EXIT_CODES = {"PASS": 0, "MEASURED": 0, "FAIL": 6, "INCONCLUSIVE": 7, "INVALID": 7}
_ALPHA = (1 - CONFIDENCE) / 2
_STATISTICS = ("p50", "p90", "p95", "p99", "mean")
_LEFT_OUT = ("queued", "ttft_from_sent")
"""What the client itself held back is of no server; from sent says what ttft says, but worse."""

_METRICS = (
    *(f"{t}_{s}_ms" for t in TIMINGS if t not in _LEFT_OUT for s in _STATISTICS),
    *LOWER_BOUNDED,
    "error_rate",
)
Method = Literal["within", "paired", "sets"]
METHODS: Mapping[Method, str] = {
    "within": "one run each: intervals from how latencies vary within a run",
    "paired": "interleaved runs in pairs: intervals from how the pairs' differences vary",
    "sets": "two sets of runs: intervals from how runs vary within each",
}


@dataclass(frozen=True)
class Side:
    """One side of a comparison: what each of its runs measured."""

    runs: Sequence[Run]
    bounds: Mapping[str, float]

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        """What each run is judged on."""
        return tuple(run.measured(self.bounds) for run in self.runs)

    @cached_property
    def figures(self) -> dict[str, list[tuple[Bounded, int] | None]]:
        """Each metric of every run."""
        return {m: [figure(m, one, _ALPHA) for one in self.measured] for m in _METRICS}

    def values(self, metric: str) -> list[float] | None:
        """Return the metric of each run; None where one has none."""
        return _of_every_run(self.figures[metric])


def compare(
    a: Sequence[Run],
    b: Sequence[Run],
    regressions: Sequence[Regression] = (),
    *,
    allow_invalid: bool = False,
) -> dict[str, Any]:
    """Compare two runs, or two sets of several.

    Two runs are compared by the raw samples of each (``gates.ratios``). Of sets, the runs are what
    varies: in pairs, where they took turns, else set against set. Goodput is compared where both
    have the same latency objectives.

    Returns:
        ``kind`` comparison, ``verdict`` and ``exit_code`` (of the regressions; INVALID where a run
        is and that is not allowed; else MEASURED), ``reasons``, ``warnings``, ``method``,
        ``confidence``, ``a`` and ``b`` (their runs), ``rows`` (of each metric: a, b, difference and
        ratio with low and high, ``shown``: better, worse, none or unknown) and ``gates``.

    Raises:
        UsageError: one side has one run, the other several; or one of several is named twice.
    """
    if min(len(a), len(b)) == 1 and max(len(a), len(b)) > 1:
        raise UsageError(
            f"{len(a)} against {len(b)} runs: how runs vary is seen from two of each side on",
            hint="name one run on each side, or several on both",
        )
    known = {(run.path.resolve(), str(run.report["started_at"])) for run in (*a, *b)}
    if len(a) > 1 and len(known) < len(a) + len(b):
        raise UsageError(
            "a run is named twice, and would seem not to vary", hint="name each run once"
        )
    method = _method(a, b)
    bounds = a[0].bounds if all(run.bounds == a[0].bounds for run in (*a, *b)) else {}
    left, right = Side(a, bounds), Side(b, bounds)
    judged = [_judged(limit, left, right, method) for limit in regressions]
    invalid = [run for run in (*a, *b) if run.is_invalid]
    is_invalid = bool(invalid) and not allow_invalid
    verdict = "INVALID" if is_invalid else gates.overall(judged) or "MEASURED"
    reasons = [f"{run.name} is INVALID: {'; '.join(run.report['reasons'][:3])}" for run in invalid]
    reasons += [
        f"{result.metric} {'≤' if result.upper else '≥'} {result.bound:g}: {result.detail}"
        for result in judged
        if result.verdict != "PASS"
    ]
    notes = warnings(a, b)
    if method == "sets":
        notes.append("the runs did not take turns: a machine that drifts would look like a change")
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "comparison",
        "verdict": verdict,
        "exit_code": EXIT_CODES[verdict],
        "reasons": reasons,
        "warnings": notes,
        "method": method,
        "confidence": CONFIDENCE,
        "a": [_said(run) for run in a],
        "b": [_said(run) for run in b],
        "rows": _rows(left, right, method),
        "gates": [asdict(result) for result in judged],
    }


def _method(a: Sequence[Run], b: Sequence[Run]) -> Method:
    if len(a) == 1:
        return "within"
    started = sorted(
        (str(run.report["started_at"]), side) for side, runs in enumerate((a, b)) for run in runs
    )
    sides = [side for _, side in started]
    turns = len(a) == len(b) and all({*sides[i : i + 2]} == {0, 1} for i in range(0, len(sides), 2))
    return "paired" if turns else "sets"


def _rows(left: Side, right: Side, method: Method) -> list[dict[str, Any]]:
    return [
        _row(metric, left, right, method)
        for metric in _METRICS
        if any((*left.figures[metric], *right.figures[metric]))
    ]


def _row(metric: str, left: Side, right: Side, method: Method) -> dict[str, Any]:
    lower_is_better = metric not in LOWER_BOUNDED
    row: dict[str, Any] = {"metric": metric, "lower_is_better": lower_is_better}
    if method == "within":
        (a,), (b,) = left.figures[metric], right.figures[metric]
        row |= {"a": _value(a), "b": _value(b)}
        if a is None or b is None or not math.isfinite(a[0].value):
            return row | {"difference": None, "ratio": None, "shown": "unknown"}
        apart, times = difference(a[0], b[0]), ratio(a[0], b[0])
    else:
        first, second = left.values(metric), right.values(metric)
        row |= {"a": _middle(first), "b": _middle(second)}
        if first is None or second is None:
            return row | {"difference": None, "ratio": None, "shown": "unknown"}
        paired = method == "paired"
        apart = mean_of_runs(first, second, _ALPHA, paired=paired)
        times = ratio_of_runs(first, second, _ALPHA, paired=paired)
    has_ratio = not is_of_difference(metric) and (row["a"] or 0) > 0
    shown = _shown(times, 1.0, lower_is_better) if has_ratio else _shown(apart, 0, lower_is_better)
    return row | {
        "difference": ends(apart),
        "ratio": ends(times) if has_ratio else None,
        "shown": shown,
    }


def _value(found: tuple[Bounded, int] | None) -> float | None:
    return None if found is None else ends(found[0])["value"]


def _middle(values: Sequence[float] | None) -> float | None:
    return None if values is None else math.fsum(values) / len(values)


def _shown(found: Bounded, same: float, lower_is_better: bool) -> str:
    if found.high < same:
        return "better" if lower_is_better else "worse"
    if found.low > same:
        return "worse" if lower_is_better else "better"
    return "none"


def _judged(limit: Regression, left: Side, right: Side, method: Method) -> GateResult:
    if method == "within":
        return judge_regression(limit, right.measured[0], left.measured[0])
    first, second = (
        _of_every_run([figure(limit.metric, one, ALPHA) for one in side.measured])
        for side in (left, right)
    )
    if first is None or second is None:
        why = "not every run has such a figure, so it cannot pass"
        return missing(limit.gate, right.measured[0], why)
    apart = mean_of_runs if is_of_difference(limit.metric) else ratio_of_runs
    found = apart(first, second, ALPHA, paired=method == "paired")
    words = f"{math.fsum(second) / len(second):.4g} against {math.fsum(first) / len(first):.4g}"
    words += f" on average of {len(second)} and {len(first)} runs"
    return of_runs(limit, found, words, len(first) + len(second))


def _of_every_run(found: Sequence[tuple[Bounded, int] | None]) -> list[float] | None:
    values = [f[0].value for f in found if f is not None and math.isfinite(f[0].value)]
    return values if len(values) == len(found) else None


def _said(run: Run) -> dict[str, Any]:
    summary = run.report["summary"]
    return {
        "name": run.name,
        "path": str(run.path),
        "verdict": run.report["verdict"],
        "started_at": run.report["started_at"],
        "requests": summary["requests"],
        "failed": summary["failed"],
        "cut": summary["cut"],
        "seconds": run.report["window"]["seconds"],
    }
