"""Whether a series is flat: a straight line through it, and how sure its slope is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

WARM_UP = 0.25
"""The share of all requests that come before the line begins."""
_SURE = 2.0
_FEWEST = 6


@dataclass(frozen=True)
class Flatness:
    """``slope`` per request, ``low`` and ``high`` two standard errors around it."""

    slope: float
    low: float
    high: float
    word: Literal["flat", "grows", "cannot tell"]


def judge(requests: Sequence[float], values: Sequence[float], limit: float) -> Flatness:
    """Judge ``values`` after so many ``requests``; ``limit`` is the slope that is too much."""
    x, y = np.array(requests, float), np.array(values, float)
    kept = x > x[-1] * WARM_UP
    x, y = x[kept], y[kept]
    if len(x) < _FEWEST:
        return Flatness(float("nan"), float("-inf"), float("inf"), "cannot tell")
    centred = x - x.mean()
    slope = float((centred * y).sum() / (centred**2).sum())
    residual = y - y.mean() - slope * centred
    error = float(np.sqrt((residual**2).sum() / (len(x) - 2) / (centred**2).sum()))
    low, high = slope - _SURE * error, slope + _SURE * error
    if high < limit:
        return Flatness(slope, low, high, "flat")
    return Flatness(slope, low, high, "grows" if low >= limit else "cannot tell")
