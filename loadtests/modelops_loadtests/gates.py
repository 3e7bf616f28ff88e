"""Service level objectives: what may be gated, how a gate is written, and how it is judged."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from modelops.errors import UsageError
from modelops_loadtests.definitions import LOWER_BOUNDED, TIMINGS
from modelops_loadtests.percentiles import CONFIDENCE, needed, percentile, rate_bound, surely_above
from modelops_loadtests.samples import Floats, Mask

GateVerdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]

_TIMING = re.compile(rf"({'|'.join(TIMINGS)})_(p\d{{1,2}}(?:\.\d{{1,3}})?|mean|max)_ms\Z")
_EXAMPLES = [f"{t}_{s}_ms" for t in TIMINGS for s in ("p50", "p90", "p95", "p99", "mean", "max")]


@dataclass(frozen=True)
class Gate:
    """One objective; ``bound`` is in the metric's unit, ``upper`` says on which side it lies."""

    metric: str
    bound: float
    upper: bool

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.upper else '≥'} {self.bound:g}"


@dataclass(frozen=True)
class Measured:
    """What gates are judged on.

    ``timings`` are the seconds of each request that succeeded, in the order in which they were
    due; ``failed_at`` says of every request, in the same order, whether it failed or was cut.
    """

    timings: Mapping[str, Floats]
    rates: Mapping[str, float]
    total: int
    failed: int
    failed_at: Mask | None = None


@dataclass(frozen=True)
class GateResult:
    """A judged gate; ``value`` is None where there is none to give, ``detail`` says why."""

    metric: str
    bound: float
    upper: bool
    verdict: GateVerdict
    value: float | None
    detail: str
    samples: int
    samples_needed: int | None = None


def parse(texts: Iterable[str]) -> tuple[Gate, ...]:
    """Read gates such as ``e2e_p95_ms=300``, ``error_rate=0.001`` or ``0.1%``, ``qps=50``.

    Latencies (in milliseconds) and the error rate are bounded from above, throughputs from below.

    Raises:
        UsageError: the form, the metric or the bound cannot be meant, or a metric comes twice.
    """
    gates: dict[str, Gate] = {}
    for text in texts:
        gate = _parse_one(text)
        if gate.metric in gates:
            raise UsageError(f"--slo {gate.metric} is given twice")
        gates[gate.metric] = gate
    return tuple(gates.values())


def _parse_one(text: str) -> Gate:
    metric, equals, written = (part.strip() for part in text.partition("="))
    if not equals or not metric or not written:
        raise UsageError(
            f"cannot read {text!r} as an objective", hint='write it as "e2e_p95_ms=300"'
        )
    timing = _TIMING.match(metric)
    if not (timing or metric == "error_rate" or metric in LOWER_BOUNDED) or "_p0_" in metric:
        raise _unknown(metric)
    is_share = written.endswith("%") and metric == "error_rate"
    try:
        bound = float(written.removesuffix("%")) / 100 if is_share else float(written)
    except ValueError:
        raise UsageError(f"{written!r} in --slo {text} is no number") from None
    if not math.isfinite(bound) or bound < 0:
        raise UsageError(f"--slo {text}: a bound is a finite number, not below zero")
    if metric == "error_rate" and bound > 1:
        raise UsageError(
            f"--slo {text}: a rate lies between 0 and 1", hint=f"error_rate={bound:g}% for percent"
        )
    return Gate(metric, bound, upper=metric not in LOWER_BOUNDED)


def _unknown(metric: str) -> UsageError:
    known = [*_EXAMPLES, "error_rate", *LOWER_BOUNDED]
    near = difflib.get_close_matches(metric, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    return UsageError(
        f"there is no metric {metric!r}",
        hint=f"{hint}known: {', '.join(TIMINGS)} with _p50_ms … _p99.9_ms, _mean_ms, _max_ms; "
        f"error_rate; {', '.join(LOWER_BOUNDED)}",
    )


def judge(gate: Gate, measured: Measured) -> GateResult:
    """Judge one gate.

    A metric that was not measured fails its gate. A request that failed met no latency bound: it
    ranks above every latency, so failing fast never passes. A percentile over fewer samples than
    ``percentiles.needed`` is INCONCLUSIVE, unless those few already prove that it is above.
    """
    match = _TIMING.match(gate.metric)
    if match:
        return _judge_timing(gate, match[1], match[2], measured)
    rate = measured.rates.get(gate.metric)
    if rate is None:
        return _missing(gate, measured)
    if gate.metric == "error_rate":
        held = rate <= gate.bound
        detail = f"{measured.failed} of {measured.total} requests failed"
        if held and measured.total:
            top = rate_bound(measured.failed, measured.total)
            detail += f"; the true rate is below {top:.2%} with {CONFIDENCE:.0%} confidence"
    else:
        held = rate >= gate.bound
        detail = LOWER_BOUNDED[gate.metric]
    return _result(gate, "PASS" if held else "FAIL", rate, detail, measured.total)


def _judge_timing(gate: Gate, timing: str, statistic: str, measured: Measured) -> GateResult:
    values = measured.timings.get(timing)
    if values is None or len(values) == 0:
        return _missing(gate, measured)
    bound, failed, total = gate.bound / 1000, measured.failed, len(values) + measured.failed
    if statistic in ("mean", "max"):
        seen = float(values.mean() if statistic == "mean" else values.max()) * 1000
        if failed:
            detail = f"{failed} of {total} requests failed, and a failed request has no latency"
            return _result(gate, "FAIL", seen, detail, total)
        held = seen <= gate.bound
        return _result(gate, "PASS" if held else "FAIL", seen, f"of {total} requests", total)
    percent = float(statistic[1:])
    value = percentile(values, percent, failed=failed)
    shown = None if value is None or math.isinf(value) else value * 1000
    enough = needed(percent)
    sure = surely_above(values, percent, bound, failed=failed)
    if total < enough and not sure:
        return _result(
            gate,
            "INCONCLUSIVE",
            shown,
            f"{total} samples cannot say what p{percent:g} is: at least {enough} are needed",
            total,
            enough,
        )
    held = shown is not None and shown <= gate.bound
    detail = f"of {total} requests"
    if failed:
        detail += f", {failed} of them failed and counted as slower than any bound"
    return _result(gate, "PASS" if held else "FAIL", shown, detail, total, enough)


def _missing(gate: Gate, measured: Measured) -> GateResult:
    return _result(
        gate, "FAIL", None, "not measured in this run, so it cannot pass", measured.total
    )


def _result(
    gate: Gate,
    verdict: GateVerdict,
    value: float | None,
    detail: str,
    samples: int,
    samples_needed: int | None = None,
) -> GateResult:
    return GateResult(
        gate.metric, gate.bound, gate.upper, verdict, value, detail, samples, samples_needed
    )


def overall(results: Iterable[GateResult]) -> GateVerdict | None:
    """Return FAIL where any gate failed, else INCONCLUSIVE where any is; None without gates."""
    verdicts = {result.verdict for result in results}
    for verdict in ("FAIL", "INCONCLUSIVE", "PASS"):
        if verdict in verdicts:
            return verdict
    return None


def finite(values: Floats) -> Floats:
    """Return the values that were measured: those that are not NaN."""
    return values[~np.isnan(values)]
