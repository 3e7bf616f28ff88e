"""Intervals of means, of rates per second and of shares, which respect correlation in time."""

from __future__ import annotations

import math

import numpy as np

from modelops_loadtests.gates.beta import share_bounds, t_quantile, z_quantile
from modelops_loadtests.gates.correlation import BATCHES, SHORTEST, batch_means, effective_size
from modelops_loadtests.gates.percentiles import Bounded
from modelops_loadtests.samples import Floats


def mean_interval(series: Floats, alpha: float) -> Bounded:
    """Return the mean of a series in time, between bounds of confidence 1 − ``alpha`` each.

    Of the effective number of samples, and with the first correction for skewness (P. Hall, *The
    Bootstrap and Edgeworth Expansion*, 1992, section 2.4): a mean of latencies is more often too
    low than too high, since what makes it high is rare.
    """
    mean, deviation = float(series.mean()), float(series.std())
    size = effective_size(series, alpha)
    if deviation == 0:
        return Bounded(mean, mean, mean, size)
    if size < 2:
        return Bounded(mean, -math.inf, math.inf, size)
    z = z_quantile(alpha)
    scaled = (series - mean) / deviation
    skewness = float((scaled * scaled * scaled).mean())
    skewed = skewness * (1 + 2 * z * z) / (6 * math.sqrt(size))
    error = deviation / math.sqrt(size)
    return Bounded(mean, mean - error * max(z - skewed, 0), mean + error * max(z + skewed, 0), size)


def rate_interval(per_second: Floats, alpha: float) -> Bounded:
    """Return the mean of what equal blocks of time saw per second, between its bounds.

    From the means of 20 and of 10 batches of blocks, whichever says the less; a load that arrives
    evenly varies less than independent samples would, and may.
    """
    mean = float(per_second.mean())
    if len(per_second) < SHORTEST:
        return Bounded(mean, -math.inf, math.inf, 1.0)
    errors = [
        t_quantile(batches - 1, alpha)
        * float(batch_means(per_second, batches).std(ddof=1))
        / math.sqrt(batches)
        for batches in BATCHES
        if len(per_second) >= 2 * batches
    ]
    return Bounded(mean, max(mean - max(errors), 0.0), mean + max(errors), float(len(per_second)))


def share_interval(series: Floats, alpha: float) -> Bounded:
    """Return the share of ones in a series in time of zeros and ones, between its bounds.

    Clopper and Pearson's of the effective number of samples.
    """
    share, size = float(np.mean(series)), effective_size(series, alpha)
    return Bounded(share, *share_bounds(share, size, alpha), size)
