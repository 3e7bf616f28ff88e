"""How much padding is cheaper than one more call, from what calls were seen to take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

DEFAULT_SLACK = 8
"""Positions; the best for a small encoder on a CPU, and never less.

Other work on the machine makes large calls dearer and small ones hardly, so that a measurement errs
downward; and where less would be best, these few positions cost a hundredth or two.
"""

_UNLIMITED = 2**20


def padding_slack(timings: Sequence[tuple[int, float]]) -> int:
    """Return how many padded positions an item may cost, for ``Batcher``.

    A call costs about ``fixed + each * positions``. Joining saves ``fixed``, and costs ``each`` for
    every padded position. Half of the break-even is best where many wait: whoever is left out finds
    a closer neighbour in the next call.

    Args:
        timings: positions (rows × length) and seconds of calls at different sizes.
    """
    if len({positions for positions, _ in timings}) < 2:
        return DEFAULT_SLACK
    positions, seconds = np.array(timings, dtype=np.float64).T
    # Relative errors: the smallest calls tell the fixed cost, and are the least noisy in seconds.
    design = np.stack([np.ones_like(positions), positions], axis=1) / seconds[:, None]
    fixed, each = np.linalg.lstsq(design, np.ones_like(seconds), rcond=None)[0]
    if each <= 0:  # no dearer for its size: an accelerator that is far from full
        return _UNLIMITED
    return int(np.clip(fixed / each / 2, DEFAULT_SLACK, _UNLIMITED))
