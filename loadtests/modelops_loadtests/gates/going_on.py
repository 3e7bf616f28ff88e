"""Whether a run that has not decided yet could, and how much longer it would have to be."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from modelops_loadtests.gates.judging import GateResult


@dataclass(frozen=True)
class Undecided:
    """What would about decide: ``factor`` times as long a run, ``more`` further samples.

    ``more`` counts samples of the gate that needs the longest, which for gaps between tokens are
    gaps; ``factor`` means the same for all.
    """

    factor: float
    more: int
    because: str


def undecided(results: Iterable[GateResult]) -> Undecided | None:
    """Return what more samples could decide; None where they could not, or nothing is open.

    Nothing is open where a gate has failed: whatever the others say, the verdict stays FAIL. A
    gate whose bound is where the metric is stays open for any number of samples, so nothing is
    gained by going on for the others.
    """
    results = tuple(results)
    still = [r for r in results if r.verdict == "INCONCLUSIVE"]
    if not still or any(r.verdict == "FAIL" for r in results):
        return None
    factors = [(r.samples_needed or math.inf) / max(r.samples, 1) for r in still]
    factor = max(factors)
    longest = still[factors.index(factor)]
    if longest.samples_needed is None:
        return None
    sign = "≤" if longest.upper else "≥"
    because = f"{longest.metric} {sign} {longest.bound:g} is undecided after {longest.samples:,}"
    return Undecided(factor, longest.samples_needed - longest.samples, because + " samples")
