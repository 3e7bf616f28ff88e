"""How much one figure differs from another: ratio and difference of two intervals.

The ends of both are put together by MOVER, the method of variance estimates recovery (Zou and
Donner, *Statistics in Medicine* 27, 2008; of ratios: Donner and Zou, *Statistical Methods in
Medical Research* 21, 2012, here on the scale of logarithms): the distance from each estimate to its
end is an estimate of its spread on that side, and the spreads add as those of independent figures
do. It needs nothing but the two intervals, so a ratio of percentiles respects correlation in time,
and needs no density, as the percentiles do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from modelops_loadtests.gates.beta import t_quantile
from modelops_loadtests.gates.percentiles import Bounded

_LEAST = 1e-9
"""Stands for zero in a ratio."""


def difference(a: Bounded, b: Bounded) -> Bounded:
    """Return b − a between its bounds, for two figures of independent runs."""
    size = min(a.size, b.size)
    if math.isinf(b.value):
        # b's percentile is among its failed requests: whatever it is, it is above b's lower end.
        low = b.low - a.high if math.isfinite(a.high) else -math.inf
        return Bounded(math.inf, low, math.inf, size)
    value = b.value - a.value
    return Bounded(
        value,
        value - math.hypot(b.value - b.low, a.high - a.value),
        value + math.hypot(b.high - b.value, a.value - a.low),
        size,
    )


def ratio(a: Bounded, b: Bounded) -> Bounded:
    """Return b / a between its bounds, for two figures that are not negative; a is finite."""
    return _exponential(difference(_logarithm(a), _logarithm(b)))


def mean_of_runs(a: Sequence[float], b: Sequence[float], alpha: float, *, paired: bool) -> Bounded:
    """Return the mean of b − that of a, where each value is of a whole run.

    How runs vary among themselves is what counts here: Student's t of the pairs' differences, or
    Welch's of two sets. ``size`` is the degrees of freedom plus one.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    value = float(second.mean() - first.mean())
    if paired:
        error = float((second - first).std(ddof=1)) / math.sqrt(len(first))
        degrees = len(first) - 1.0
    else:
        parts = [float(v.var(ddof=1)) / len(v) for v in (first, second)]
        error = math.sqrt(sum(parts))
        below = sum(p * p / (len(v) - 1) for p, v in zip(parts, (first, second), strict=True))
        degrees = sum(parts) ** 2 / below if below > 0 else len(first) + len(second) - 2.0
    reach = t_quantile(degrees, alpha) * error
    return Bounded(value, value - reach, value + reach, degrees + 1)


def ratio_of_runs(a: Sequence[float], b: Sequence[float], alpha: float, *, paired: bool) -> Bounded:
    """Return the ratio of the geometric means of b and of a, as ``mean_of_runs`` does."""
    first, second = ([math.log(max(v, _LEAST)) for v in values] for values in (a, b))
    return _exponential(mean_of_runs(first, second, alpha, paired=paired))


def _logarithm(found: Bounded) -> Bounded:
    value, low, high = (
        math.inf if v == math.inf else math.log(max(v, _LEAST))
        for v in (found.value, found.low, found.high)
    )
    return Bounded(value, low, high, found.size)


def _exponential(found: Bounded) -> Bounded:
    value, low, high = (
        math.exp(v) if v < 700 else math.inf for v in (found.value, found.low, found.high)
    )
    return Bounded(value, low, high, found.size)
