"""Gates judged on what a run measured: PASS and FAIL only where the run shows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from modelops_loadtests.definitions import LOWER_BOUNDED, timing_of
from modelops_loadtests.gates.averages import mean_interval, rate_interval, share_interval
from modelops_loadtests.gates.beta import share_bounds
from modelops_loadtests.gates.correlation import SHORTEST
from modelops_loadtests.gates.needed import needed_for_margin, needed_for_share
from modelops_loadtests.gates.objectives import Gate
from modelops_loadtests.gates.percentiles import ALPHA, Bounded, needed, percentile_interval
from modelops_loadtests.samples import Floats, Mask

GateVerdict = Literal["PASS", "FAIL", "INCONCLUSIVE"]


@dataclass(frozen=True)
class Measured:
    """What gates are judged on; all of it in the order of time.

    ``timings`` are seconds in the order in which requests were due, inf for a request that failed
    or was cut; a request that cannot have a timing has no place in it. ``failed_at`` says of every
    request whether it failed or was cut. ``per_second`` are, for each throughput, the rates of
    equal blocks of the measured time; ``met_at`` says of every request whether it met all latency
    objectives, None where there are none.
    """

    timings: Mapping[str, Floats]
    failed_at: Mask
    per_second: Mapping[str, Floats]
    met_at: Mask | None = None

    @property
    def total(self) -> int:
        """All requests."""
        return len(self.failed_at)

    @property
    def failed(self) -> int:
        """Requests that failed or were cut."""
        return int(np.count_nonzero(self.failed_at))


@dataclass(frozen=True)
class Interval:
    """Where the truth lies with ``confidence``; a side that is not known is None.

    Each end alone holds with (1 + confidence) / 2: a verdict, which asks on one side only, is
    wrong in at most that share of runs.
    """

    low: float | None
    high: float | None
    confidence: float


@dataclass(frozen=True)
class GateResult:
    """A judged gate; ``value`` is None where there is none to give, ``detail`` says why.

    ``samples`` are what it was judged on, ``samples_needed`` about how many would decide, where
    these did not and so many could.
    """

    metric: str
    bound: float
    upper: bool
    verdict: GateVerdict
    value: float | None
    detail: str
    samples: int
    samples_needed: int | None = None
    interval: Interval | None = None


def judge(gate: Gate, measured: Measured, *, looks: int = 1) -> GateResult:
    """Judge one gate.

    PASS where the interval of the metric lies on the right side of the bound, FAIL where it lies on
    the wrong one, else INCONCLUSIVE. A metric that was not measured fails its gate. A request that
    failed met no latency bound: it ranks above every latency, so failing fast never passes, and
    neither a mean nor a maximum holds with one. ``max`` is of the requests seen and needs no
    interval. ``error_rate=0`` is literal, too: it passes where no request failed.

    Args:
        gate: the objective.
        measured: what the run saw.
        looks: at most how often this run is judged, where it goes on while it is undecided. Each
            look may be wrong, so each gets its share of the 5 % (Bonferroni).
    """
    alpha = ALPHA / looks
    timing = timing_of(gate.metric)
    if timing is not None:
        return _judge_timing(gate, *timing, measured, alpha)
    if gate.metric == "error_rate" and measured.total:
        return _judge_share(gate, measured.failed_at, measured, alpha)
    if gate.metric == "goodput_share" and measured.met_at is not None and measured.total:
        return _judge_share(gate, measured.met_at, measured, alpha)
    blocks = measured.per_second.get(gate.metric)
    if blocks is None or not len(blocks) or not measured.total:
        return missing(gate, measured)
    return _judge_rate(gate, blocks, measured, alpha)


def _judge_timing(
    gate: Gate, timing: str, statistic: str, measured: Measured, alpha: float
) -> GateResult:
    values = measured.timings.get(timing)
    if values is None or not np.isfinite(values).any():
        return missing(gate, measured)
    if statistic not in ("mean", "max"):
        return _judge_percentile(gate, values * 1000, float(statistic[1:]), alpha)
    known = values[np.isfinite(values)] * 1000
    failed, total = len(values) - len(known), len(values)
    seen = float(known.mean() if statistic == "mean" else known.max())
    if failed:
        detail = f"{measured.failed} of {measured.total} requests failed, and a failed request "
        return result(gate, "FAIL", seen, detail + "has no latency", total)
    if statistic == "max":
        held = seen <= gate.bound
        return result(gate, "PASS" if held else "FAIL", seen, f"of {total:,} samples", total)
    return decided(gate, mean_interval(known, alpha), total, alpha)


def _judge_percentile(gate: Gate, values: Floats, percent: float, alpha: float) -> GateResult:
    total, failed = len(values), int(np.count_nonzero(np.isinf(values)))
    found = percentile_interval(values, percent, alpha)
    note = f", {failed:,} of them failed and counted as slower than any bound" if failed else ""
    least = max(needed(percent, alpha), SHORTEST)
    # What lies at the lower end, around the median, says nothing of how long a PASS takes.
    worth = found.size if found.size_high is None or found.value > gate.bound else found.size_high
    if worth >= least or not found.low <= gate.bound < found.high:
        over = float(np.mean(values > gate.bound))
        return decided(
            gate,
            found,
            total,
            alpha,
            note=note,
            more=lambda: needed_for_share(over, 1 - percent / 100, total, worth, alpha),
        )
    # The largest that were seen bound no percentile from above: too few, whatever they are.
    enough = math.ceil(least * total / worth)
    detail = f"{total} samples{note} cannot say what p{percent:g} is: at least {enough} are needed"
    if worth < total:
        detail += f", since they are correlated and worth {worth:.0f} independent ones"
    shown = found.value if math.isfinite(found.value) else None
    return result(
        gate, "INCONCLUSIVE", shown, detail, total, enough, interval=interval(found, alpha)
    )


def _judge_share(gate: Gate, hits: Mask, measured: Measured, alpha: float) -> GateResult:
    total, seen = measured.total, int(np.count_nonzero(hits))
    found = share_interval(hits.astype(np.float64), alpha)
    if gate.metric == "goodput_share":
        words = f"{seen:,} of {total:,} requests met every latency objective"
    else:
        words = f"{seen:,} of {total:,} requests failed"
    if gate.metric == "error_rate":
        independent = share_bounds(found.value, total, alpha)[0]
        # An outage is one event that says little of the next; yet so many users have met it.
        found = replace(found, low=max(found.low, independent))
        if gate.bound == 0:
            words += f"; the true rate is below {found.high:.2g} with {1 - alpha:.0%} confidence"
            verdict: GateVerdict = "FAIL" if seen else "PASS"
            known = interval(found, alpha)
            return result(gate, verdict, found.value, words, total, interval=known)
    share, limit = (found.value, gate.bound) if gate.upper else (1 - found.value, 1 - gate.bound)
    return decided(
        gate,
        found,
        total,
        alpha,
        words=words,
        more=lambda: needed_for_share(share, limit, total, found.size, alpha),
    )


def _judge_rate(gate: Gate, blocks: Floats, measured: Measured, alpha: float) -> GateResult:
    words = LOWER_BOUNDED[gate.metric]
    return decided(gate, rate_interval(blocks, alpha), measured.total, alpha, words=words)


def decided(
    gate: Gate,
    found: Bounded,
    total: int,
    alpha: float,
    *,
    words: str = "",
    note: str = "",
    more: Callable[[], int | None] | None = None,
    unit: str = "samples",
) -> GateResult:
    """Return the verdict that an interval gives, in words.

    ``more`` tells about how many samples would decide, where the caller knows better than that an
    interval narrows with the square root of its samples.
    """
    held = found.high <= gate.bound if gate.upper else found.low >= gate.bound
    broken = found.low > gate.bound if gate.upper else found.high < gate.bound
    verdict: GateVerdict = "PASS" if held else "FAIL" if broken else "INCONCLUSIVE"
    said = words or f"of {total:,} samples{note}"
    if not words and found.size < 0.9 * total:
        said += f", worth {found.size:,.0f} independent ones"
    said += f"; {within(found)} with {1 - 2 * alpha:.0%} confidence"
    needs = None
    if verdict == "INCONCLUSIVE":
        needs = more() if more else needed_for_margin(found, gate.bound, total)
        said += f", so {total:,} {unit} do not decide: "
        if needs:
            said += f"about {needs:,} would"
        elif math.isfinite(found.high):
            said += "the bound is too close to tell apart"
        else:
            said += "they are too few to bound it"
    value = found.value if math.isfinite(found.value) else None
    return result(gate, verdict, value, said, total, needs, interval=interval(found, alpha))


def within(found: Bounded) -> str:
    """Return an interval in words."""
    low, high = f"{found.low:.4g}", f"{found.high:.4g}"
    if not math.isfinite(found.low):
        return f"at most {high}" if math.isfinite(found.high) else "anything"
    return f"between {low} and {high}" if math.isfinite(found.high) else f"at least {low}"


def interval(found: Bounded, alpha: float) -> Interval:
    """Return an interval as the report has it."""
    low, high = (v if math.isfinite(v) else None for v in (found.low, found.high))
    return Interval(low, high, round(1 - 2 * alpha, 6))


def missing(
    gate: Gate, measured: Measured, why: str = "not measured in this run, so it cannot pass"
) -> GateResult:
    """Return the result of a gate on what this run did not measure."""
    if gate.metric.startswith("goodput") and measured.met_at is None:
        why = "there is no latency objective that a request could meet, so it cannot pass"
    return result(gate, "FAIL", None, why, measured.total)


def result(
    gate: Gate,
    verdict: GateVerdict,
    value: float | None,
    detail: str,
    samples: int,
    samples_needed: int | None = None,
    interval: Interval | None = None,
) -> GateResult:
    """Return the result of ``gate``."""
    return GateResult(
        gate.metric,
        gate.bound,
        gate.upper,
        verdict,
        value,
        detail,
        samples,
        samples_needed,
        interval,
    )


def overall(results: Iterable[GateResult]) -> GateVerdict | None:
    """Return FAIL where any gate failed, else INCONCLUSIVE where any is; None without gates."""
    verdicts = {result.verdict for result in results}
    for verdict in ("FAIL", "INCONCLUSIVE", "PASS"):
        if verdict in verdicts:
            return verdict
    return None
