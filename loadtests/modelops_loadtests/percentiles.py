"""Percentiles from raw samples, and how many samples a percentile needs to mean anything."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from modelops_loadtests.samples import Floats

CONFIDENCE = 0.95


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
    rank = math.ceil(Fraction(str(percent)) * total / 100)
    if rank > len(values):
        return math.inf
    return float(np.partition(values, rank - 1)[rank - 1])


def needed(percent: float, confidence: float = CONFIDENCE) -> int:
    """Return the fewest samples from which a percentile can be bounded from above.

    The largest of n independent samples lies above the true percentile p unless all n fell below
    it, which happens with probability pⁿ. Only when pⁿ ≤ 1 − confidence does any order statistic
    bound the percentile from above; with fewer samples not even the slowest request seen says that
    p is below a bound. So n ≥ ln(1 − confidence) / ln p: 59 for p95 and 299 for p99 at 95 %.
    (David and Nagaraja, Order Statistics, section 7.1.) Requests of one run are not independent,
    so this is the least, not the enough.
    """
    if percent >= 100:
        return 1
    return math.ceil(math.log(1 - confidence) / math.log(percent / 100))


def surely_above(
    values: Floats, percent: float, bound: float, *, failed: int = 0, confidence: float = CONFIDENCE
) -> bool:
    """Tell whether so many samples exceed ``bound`` that the true percentile must.

    Were the percentile at or below the bound, each sample would exceed it with probability at
    most q = 1 − percent/100, and k or more of n with the binomial tail P(X ≥ k). The answer is
    yes where that tail is at most 1 − confidence.
    """
    total = len(values) + failed
    over = int(np.count_nonzero(values > bound)) + failed
    return over > 0 and binomial_tail(over, total, 1 - percent / 100) <= 1 - confidence


def binomial_tail(k: int, n: int, q: float) -> float:
    """Return P(X ≥ k) for X binomial with n trials of probability q."""
    if k <= 0:
        return 1.0
    if q <= 0:
        return 0.0
    if q >= 1:
        return 1.0 if k <= n else 0.0
    log_q, log_not = math.log(q), math.log1p(-q)
    terms = (
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * log_q
        + (n - i) * log_not
        for i in range(k, n + 1)
    )
    return min(1.0, math.fsum(math.exp(t) for t in terms))


def rate_bound(events: int, total: int, confidence: float = CONFIDENCE) -> float:
    """Return the upper Clopper-Pearson bound on the rate behind ``events`` of ``total``.

    With no event it is 1 − (1 − confidence)^(1/n), about 3/n at 95 %.
    """
    if events >= total:
        return 1.0
    if events == 0:
        return float(1 - (1 - confidence) ** (1 / total))
    low, high = events / total, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if 1 - binomial_tail(events + 1, total, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high
