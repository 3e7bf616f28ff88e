"""Percentiles from raw samples, how many samples one needs, and the interval it is known within."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from modelops_loadtests.gates.beta import share_above, share_at_most
from modelops_loadtests.gates.correlation import effective_size
from modelops_loadtests.samples import Floats, Mask

CONFIDENCE = 0.95
ALPHA = 1 - CONFIDENCE


def percentile(values: Floats, percent: float, *, failed: int = 0) -> float | None:
    """Return the nearest-rank percentile: the smallest value that ``percent`` % do not exceed.

    It is always a value that was observed, never an interpolation or the edge of a bucket: the
    ⌈n · percent / 100⌉-th smallest (numpy's ``inverted_cdf``, Hyndman and Fan's type 1). The rank
    is computed in exact arithmetic, so that 7 % of 100 is the 7th and not the 8th.

    ``failed`` counts requests without a latency; they rank above every value.

    Returns:
        The percentile in the unit of ``values``, inf where it falls among the failed, None where
        there is no sample.
    """
    if not 0 < percent <= 100:
        raise ValueError(f"a percentile lies above 0 and up to 100, not at {percent}")
    total = len(values) + failed
    if total == 0:
        return None
    rank = _rank(percent, total)
    if rank > len(values):
        return math.inf
    return float(np.partition(values, rank - 1)[rank - 1])


def _rank(percent: float, total: int) -> int:
    return math.ceil(Fraction(str(percent)) * total / 100)


def needed(percent: float, alpha: float = ALPHA) -> int:
    """Return the fewest independent samples from which a percentile can be bounded from above.

    The largest of n independent samples lies above the true percentile p unless all n fell below
    it, which happens with probability pⁿ. Only when pⁿ ≤ ``alpha`` does any order statistic bound
    the percentile from above; with fewer samples not even the slowest request seen says that p is
    below a bound. So n ≥ ln alpha / ln p: 59 for p95 and 299 for p99 at 95 %. (David and Nagaraja,
    *Order Statistics*, section 7.1.)
    """
    if percent >= 100:
        return 1
    return math.ceil(math.log(alpha) / math.log(percent / 100))


@dataclass(frozen=True)
class Bounded:
    """A figure between its bounds, each of which holds with the confidence asked.

    A bound that the samples do not give is infinite. ``size`` is how many independent samples the
    series is worth, at the least; ``size_high`` the same where only the upper bound is asked for.
    """

    value: float
    low: float
    high: float
    size: float
    size_high: float | None = None


def percentile_interval(
    series: Floats, percent: float, alpha: float = ALPHA, ordered: Floats | None = None
) -> Bounded:
    """Return the percentile of a series in time, between two of its own order statistics.

    A bound v is shown to lie above the percentile p where the share of samples that exceed v is
    shown to be at most 1 − p: where its upper Clopper-Pearson bound is, computed as if there were
    not n samples but as many independent ones as the series of zeros and ones "exceeds v" is worth
    (``correlation.effective_size``). No density has to be estimated, nothing is resampled, and
    failed requests simply exceed everything. The effective number is taken at the percentile
    itself, and again at each of the two bounds that it leads to: what exceeds a high value may
    come in longer bursts.

    Args:
        series: at least one value, in the order in which the requests were due; inf for failed.
        percent: which percentile, above 0 and below 100.
        alpha: the probability that the truth lies beyond one end.
        ordered: the same values sorted, where the caller has them.
    """
    ordered = np.sort(series) if ordered is None else ordered
    n, limit = len(series), 1 - percent / 100
    value = float(ordered[_rank(percent, n) - 1])
    # Where nothing exceeds it, as nothing exceeds a failed request, it is those that reach it.
    beyond = series > value if value < ordered[-1] else series >= value
    size = effective_size(beyond.astype(np.float64), alpha)
    high, size_high = _settled(
        lambda worth: _upper(ordered, worth, limit, alpha),
        lambda v: series >= v,
        size,
        alpha,
    )
    low, size_low = _settled(
        lambda worth: _lower(ordered, worth, limit, alpha),
        lambda v: series > v if v < ordered[-1] else series >= v,
        size,
        alpha,
    )
    size_high = min(size, size_high)
    return Bounded(value, min(low, value), max(high, value), min(size_high, size_low), size_high)


def _settled(
    bound: Callable[[float], float], beyond: Callable[[float], Mask], size: float, alpha: float
) -> tuple[float, float]:
    """Return a bound, and the effective size that holds there as well."""
    size = min(size, effective_size(beyond(bound(size)).astype(np.float64), alpha))
    return bound(size), size


def _upper(ordered: Floats, size: float, limit: float, alpha: float) -> float:
    """Return the least value that so few samples exceed that the true share is at most ``limit``.

    Of fewer than ``needed`` not even none exceeding it says so: inf.
    """
    n = len(ordered)
    most = _last(n, lambda k: share_at_most(k / n, size, limit, alpha), up_to=limit)
    return math.inf if most is None else float(ordered[n - most - 1])


def _lower(ordered: Floats, size: float, limit: float, alpha: float) -> float:
    """Return the least value that not so many samples exceed that the true share must be above.

    A bound that lies below it is exceeded by too many.
    """
    n = len(ordered)
    most = _last(n, lambda k: not share_above(k / n, size, limit, alpha), up_to=1.0)
    return -math.inf if most is None or most == n else float(ordered[n - most - 1])


def _last(n: int, holds: Callable[[int], bool], *, up_to: float) -> int | None:
    """Return the largest count up to that share for which ``holds`` is true, as it is for fewer."""
    low, high = -1, math.floor(up_to * n)
    while low < high:
        middle = (low + high + 1) // 2
        if holds(middle):
            low = middle
        else:
            high = middle - 1
    return None if low < 0 else low
