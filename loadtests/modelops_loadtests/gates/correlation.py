"""How many independent samples a series in time is worth.

Requests of one run are not independent: a pause of the server slows all that are due in it, and a
queue that has grown takes a while to empty. The mean of n such values varies as the mean of n/τ
independent ones would, where τ = 1 + 2 Σ ρₖ is the integrated autocorrelation time of the series
(Sokal, *Monte Carlo methods in statistical mechanics*, 1997, section 3).
"""

from __future__ import annotations

import math

import numpy as np

from modelops_loadtests.gates.beta import t_quantile, z_quantile
from modelops_loadtests.samples import Floats

BATCHES = (10, 20)
SHORTEST = 2 * min(BATCHES)
"""Fewer samples say nothing about their correlation."""
_WINDOW = 5
_LONGEST = 1 << 15


def effective_size(series: Floats, alpha: float) -> float:
    """Return the effective number of samples in ``series``, between 1 and its length.

    The least of three estimates, each blind where another one sees. The autocorrelations, summed
    up to the lag that is five times the sum (Sokal's window; with its bias, from the mean that is
    estimated too, taken out), know τ well where the series is short, but stop too early where a
    weak correlation lasts long. The means of 20 and of 10 batches (Law and Carson, *Operations
    Research* 27, 1979) need no window, but batches shorter than the correlation show too little
    of it. None of them is exact: each is lowered by (z/t)², so that a normal interval of it is as
    wide as Student's with the degrees of freedom that the estimate has (Korn and Graubard,
    *Survey Methodology* 24, 1998, do so for proportions). ``alpha`` is the probability beyond one
    end of the interval.

    A series that does not vary, or is shorter than ``SHORTEST``, shows no correlation: all of it
    counts.
    """
    n = len(series)
    if n < SHORTEST or (spread := float(series.var())) == 0:
        return float(n)
    found = [_lowered(n / time, lags, alpha) for time, lags in [_autocorrelation(series, spread)]]
    for batches in BATCHES:
        if n >= 2 * batches:
            varies = float(batch_means(series, batches).var(ddof=1)) * (n // batches) / spread
            found.append(_lowered(n / max(varies, 1.0), batches - 1, alpha))
    return float(min(max(min(found), 1.0), n))


def batch_means(series: Floats, batches: int) -> Floats:
    """Return the means of as many equal batches, in time; what does not fill them is left out."""
    length = len(series) // batches
    means: Floats = series[: batches * length].reshape(batches, length).mean(axis=1)
    return means


def _lowered(size: float, degrees: float, alpha: float) -> float:
    return size * (z_quantile(alpha) / t_quantile(round(max(degrees, 1.0)), alpha)) ** 2


def _autocorrelation(series: Floats, spread: float) -> tuple[float, float]:
    """Return the autocorrelation time and the degrees of freedom that are left to know it by.

    Of a long series, means of short batches are looked at: the variance of their mean is that of
    all of it.
    """
    group = math.ceil(len(series) / _LONGEST)
    values = batch_means(series, len(series) // group) if group > 1 else series
    within = float(values.var()) * group / spread
    n = len(values)
    centred = values - values.mean()
    length = 1 << (2 * n - 1).bit_length()
    power = np.abs(np.fft.rfft(centred, length)) ** 2
    covariances = np.fft.irfft(power, length)[: n // 2 + 1]
    if covariances[0] <= 0:
        return max(within, 1.0), n / 2
    times = 2 * np.cumsum(covariances / covariances[0]) - 1
    enough = np.arange(len(times)) >= _WINDOW * np.maximum(times, 1.0)
    lag = int(enough.argmax()) if enough.any() else int(times.argmax())
    kept = max(1 - (2 * lag + 1) / n, 0.1)
    return max(within * float(times[lag]) / kept, 1.0), n / max(2 * lag, 2)
