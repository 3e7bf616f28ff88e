"""About how many samples would decide what so many did not."""

from __future__ import annotations

import math

from modelops_loadtests.gates.beta import share_above, share_at_most, z_quantile
from modelops_loadtests.gates.percentiles import Bounded

_MOST = 10**9
"""More samples than anybody would wait for: the bound is where the truth is."""
_EXACT = 100_000


def needed_for_share(
    share: float, limit: float, total: int, size: float, alpha: float
) -> int | None:
    """Return about how many samples show on which side of ``limit`` the true share lies.

    As if ever more samples showed the same share and the same correlation.
    """
    margin = abs(share - limit)
    if margin == 0:
        return None
    # Where it takes many, the normal approximation is as good, and does not take long.
    worth = (z_quantile(alpha) / margin) ** 2 * limit * (1 - limit)
    if worth < _EXACT:
        low, worth = size, max(size, 1.0)
        while not _shown(share, worth, limit, alpha):
            low, worth = worth, 2 * worth
        for _ in range(20):
            middle = (low + worth) / 2
            low, worth = (low, middle) if _shown(share, middle, limit, alpha) else (middle, worth)
    needs = worth * total / size
    return max(math.ceil(needs), total + 1) if needs <= _MOST else None


def _shown(share: float, worth: float, limit: float, alpha: float) -> bool:
    if share <= limit:
        return share_at_most(share, worth, limit, alpha)
    return share_above(share, worth, limit, alpha)


def needed_for_margin(found: Bounded, bound: float, total: int) -> int | None:
    """Return about how many samples it takes until the interval no longer holds the bound."""
    reach = found.low if bound < found.value else found.high
    margin = abs(found.value - bound)
    if margin == 0 or not math.isfinite(reach):
        return None
    times = (abs(reach - found.value) / margin) ** 2
    return max(math.ceil(times * total), total + 1) if times * total <= _MOST else None
