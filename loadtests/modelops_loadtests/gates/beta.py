"""Exact binomial intervals: the incomplete beta function and what is computed from it.

numpy has no special functions, and scipy is not needed for two of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

_TINY = 1e-300


def betainc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), for a and b above 0.

    For whole k it is the binomial tail: I_q(k, n − k + 1) = P(X ≥ k) of n trials at rate q; for
    other k it interpolates between those. By its continued fraction (NIST's Digital Library of
    Mathematical Functions, 8.17.22), evaluated by Lentz's method.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    log_front = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    # The fraction converges fast only below the mean; above it the other tail is computed.
    if x > (a + 1) / (a + b + 2):
        return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b
    return math.exp(log_front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    value = d
    for m in range(1, 100_000):
        even = a + 2 * m
        for term in (
            m * (b - m) * x / ((even - 1) * even),
            -(a + m) * (a + b + m) * x / (even * (even + 1)),
        ):
            d = 1 / ((1 + term * d) or _TINY)
            c = (1 + term / c) or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-12:
            return value
    raise ArithmeticError(f"I_{x}({a}, {b}) does not converge")


def share_at_most(share: float, trials: float, limit: float, alpha: float) -> bool:
    """Tell whether ``share`` of ``trials`` shows the true rate to be at most ``limit``.

    Yes where the upper Clopper-Pearson bound of confidence 1 − ``alpha`` is: were the rate above
    the limit, so few would be seen with a probability of at most ``alpha``. ``trials`` need not be
    whole: it is an effective number.
    """
    events = share * trials
    return events < trials and betainc(events + 1, trials - events, limit) >= 1 - alpha


def share_above(share: float, trials: float, limit: float, alpha: float) -> bool:
    """Tell whether ``share`` of ``trials`` shows the true rate to be above ``limit``."""
    events = share * trials
    return events > 0 and betainc(events, trials - events + 1, limit) <= alpha


def share_bounds(share: float, trials: float, alpha: float) -> tuple[float, float]:
    """Return the lower and upper Clopper-Pearson bound, each of confidence 1 − ``alpha``.

    With no event the upper bound is 1 − alpha^(1/n), about 3/n at 95 % (the "rule of three").
    """
    if trials <= 0:
        return 0.0, 1.0
    low = _root(lambda rate: not share_above(share, trials, rate, alpha)) if share > 0 else 0.0
    high = _root(lambda rate: share_at_most(share, trials, rate, alpha)) if share < 1 else 1.0
    return low, high


def _root(holds: Callable[[float], bool]) -> float:
    """Return the least rate for which ``holds`` is true; it is for all larger ones."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


@lru_cache(maxsize=256)
def t_quantile(degrees: float, alpha: float) -> float:
    """Return what Student's t exceeds with probability ``alpha``, below one half.

    From 50 degrees of freedom on by its expansion around the normal's (Abramowitz and Stegun,
    26.7.5), which is then right to five digits.
    """
    if degrees >= 50:
        z = z_quantile(alpha)
        first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
        return z + first / degrees + second / degrees**2
    low, high = 0.0, 1.0
    while _t_tail(high, degrees) > alpha:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _t_tail(middle, degrees) > alpha else (low, middle)
    return high


def _t_tail(t: float, degrees: float) -> float:
    return betainc(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


@lru_cache(maxsize=64)
def z_quantile(alpha: float) -> float:
    """Return what a standard normal exceeds with probability ``alpha``, below one half."""
    low, high = 0.0, 40.0
    for _ in range(70):
        middle = (low + high) / 2
        above = math.erfc(middle / math.sqrt(2)) / 2 > alpha
        low, high = (middle, high) if above else (low, middle)
    return high
