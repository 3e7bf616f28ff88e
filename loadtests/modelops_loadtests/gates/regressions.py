"""Gates on a change: how much worse than a baseline run a metric may be."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from modelops.errors import UsageError
from modelops_loadtests.definitions import LOWER_BOUNDED, timing_of
from modelops_loadtests.gates.figures import figure
from modelops_loadtests.gates.judging import GateResult, Measured, decided, missing
from modelops_loadtests.gates.objectives import Gate, unknown
from modelops_loadtests.gates.percentiles import ALPHA, Bounded, needed
from modelops_loadtests.gates.ratios import difference, ratio

RATIO, DIFFERENCE = " ÷ baseline", " − baseline"
_SHARES = ("error_rate", "goodput_share")
_BARE = re.compile(r"(p\d{1,2}(?:\.\d{1,3})?|mean)\Z")


@dataclass(frozen=True)
class Regression:
    """How much worse a metric may be: a share of the baseline, or points of a share."""

    metric: str
    allowed: float

    @property
    def gate(self) -> Gate:
        """The same as a gate: on the ratio to the baseline, or on the difference of shares."""
        upper = self.metric not in LOWER_BOUNDED
        allowed = self.allowed if upper else -self.allowed
        if self.metric in _SHARES:
            return Gate(self.metric + DIFFERENCE, allowed, upper)
        return Gate(self.metric + RATIO, 1 + allowed, upper)


def parse_regressions(texts: Iterable[str]) -> tuple[Regression, ...]:
    """Read limits such as ``p95=5%`` (of e2e), ``ttft_p99=10%``, ``qps=2%`` or ``error_rate=0.1%``.

    Of rates that are shares, ``error_rate`` and ``goodput_share``, the limit is in points: 0.1 %
    more requests may fail. Of all others it is a share of the baseline's value.

    Raises:
        UsageError: the form, the metric or the limit cannot be meant, or a metric comes twice.
    """
    found: dict[str, Regression] = {}
    for text in texts:
        metric, _, written = (part.strip() for part in text.partition("="))
        if not metric or not written:
            raise UsageError(
                f"cannot read {text!r} as a limit", hint='write it as "p95=5%" or "ttft_p99=10%"'
            )
        name = _metric(metric)
        if name in found:
            raise UsageError(f"--max-regression: {name} is given twice")
        found[name] = Regression(name, _limit(text, written))
    return tuple(found.values())


def _metric(written: str) -> str:
    name = f"e2e_{written}" if _BARE.match(written) else written
    if timing_of(f"{name}_ms"):
        name = f"{name}_ms"
    timing = timing_of(name)
    if timing is not None and timing[1] == "max":
        raise UsageError(
            f"{written}: of two runs' slowest requests neither says what the next will be",
            hint="gate a percentile, such as p99",
        )
    if timing is None and name not in (*_SHARES, *LOWER_BOUNDED):
        raise unknown(written)
    return name


def _limit(text: str, written: str) -> float:
    try:
        limit = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        raise UsageError(f"--max-regression {text}: {written!r} is no number") from None
    if not math.isfinite(limit) or limit < 0:
        raise UsageError(f"--max-regression {text}: a limit is not below zero")
    if limit >= 1 and not written.endswith("%"):
        raise UsageError(
            f"--max-regression {text}: that is {limit:.0%}", hint=f"{limit:g}% for percent"
        )
    return limit


def judge_regression(
    regression: Regression, measured: Measured, baseline: Measured, *, looks: int = 1
) -> GateResult:
    """Judge one limit by the raw samples of both runs.

    PASS where the interval of the ratio (of shares: of the difference) excludes a larger
    regression, FAIL where it shows one, else INCONCLUSIVE; ``looks`` is as for ``judge``. What
    either run did not measure fails, and so does a mean where requests failed.
    """
    alpha, gate = ALPHA / looks, regression.gate
    seen = figure(regression.metric, measured, alpha)
    before = figure(regression.metric, baseline, alpha)
    if seen is None:
        return missing(gate, measured)
    if before is None or math.isinf(before[0].value):
        return missing(gate, measured, "the baseline has no such figure, so it cannot pass")
    timing = timing_of(regression.metric)
    if timing is not None and timing[1] == "mean" and measured.failed:
        lost = f"{measured.failed} of {measured.total} requests failed"
        return missing(gate, measured, f"{lost}, and a failed request has no latency")
    (b, samples), (a, _) = seen, before
    is_share = regression.metric in _SHARES
    found = difference(a, b) if is_share else ratio(a, b)
    unit = " ms" if timing is not None else ""
    words = f"{_figure(b, unit)} against {_figure(a, unit)} in the baseline"
    return decided(
        gate,
        found,
        samples,
        alpha,
        words=words,
        more=None if is_share else lambda: _more(regression, a, b, samples),
    )


def of_runs(regression: Regression, found: Bounded, words: str, runs: int) -> GateResult:
    """Judge one limit by an interval over whole runs (``ratios.ratio_of_runs``)."""
    return decided(regression.gate, found, runs, ALPHA, words=words, unit="runs")


def is_of_difference(metric: str) -> bool:
    """Whether a limit on this metric is in points, not in shares of the baseline."""
    return metric in _SHARES


def _figure(found: Bounded, unit: str) -> str:
    return f"{found.value:.4g}{unit}" if math.isfinite(found.value) else "a failed request"


def _more(regression: Regression, a: Bounded, b: Bounded, samples: int) -> int | None:
    """Return about how many samples of this run would decide; None where the baseline is too short.

    Only this run's part of the interval narrows when it goes on.
    """
    if not math.isfinite(a.high):
        return None
    if not math.isfinite(b.high):
        timing = timing_of(regression.metric)
        is_percentile = timing is not None and timing[1] != "mean"
        least = needed(float(timing[1][1:])) if timing is not None and is_percentile else 2
        return math.ceil(least * samples / b.size)
    margin = abs(_log(b.value) - _log(a.value) - _log(regression.gate.bound))
    own = (_log(b.high) - _log(b.low)) / 2
    others = (_log(a.high) - _log(a.low)) / 2
    if margin <= others:
        return None
    return max(math.ceil(samples * own**2 / (margin**2 - others**2)), samples + 1)


def _log(value: float) -> float:
    return math.log(max(value, 1e-9))
