"""Which nodes cannot bear eight bits: measured one by one, and left out until the rest holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from modelops.artifact.manifest import OutputParity, Tolerance
from modelops.parity.compare import compare_outputs
from modelops.parity.inputs import Arrays
from modelops.progress import Progress
from modelops.signature import TensorSpec
from modelops_exporters.quantize.ranges import session_of

# The gate judges on other inputs than those searched on, and should find a little room left.
_MARGIN = 0.7


@dataclass(frozen=True)
class Aim:
    """What a quantised model is tried on, and how far its outputs may be from float32's."""

    outputs: tuple[TensorSpec, ...]
    tolerance: Tolerance
    trials: tuple[Arrays, ...]


@dataclass(frozen=True)
class Attempt:
    """One try: how many nodes were left out, the worst cosine and relative error."""

    left_out: int
    cosine: float | None
    error: float
    holds: bool


class Judge:
    """Runs candidates on the trials and compares them with the float32 model's answers."""

    def __init__(self, source: Path, aim: Aim) -> None:
        self._aim = aim
        asked = aim.tolerance
        self._tolerance = Tolerance(
            atol=asked.atol * _MARGIN,
            rtol=asked.rtol * _MARGIN,
            min_cosine=1 - (1 - asked.min_cosine) * _MARGIN,
        )
        self._expected = self._answers(source)

    def attempt(self, model: Path, left_out: int) -> Attempt:
        """Compare one candidate."""
        found = self._compare(model)
        cosines = [o.cosine for o in found if o.cosine is not None]
        errors = [o.max_rel for o in found if o.max_rel is not None]
        return Attempt(
            left_out,
            min(cosines) if cosines else None,
            max(errors) if errors else float("inf"),
            all(o.passed for o in found),
        )

    def distance(self, model: Path) -> float:
        """Return how far a candidate is: the rms of the error over the rms of the answer."""
        worst = 0.0
        for expected, got in zip(self._expected, self._answers(model), strict=True):
            for spec in self._aim.outputs:
                wanted = expected[spec.name].astype(np.float64)
                gap = got[spec.name].astype(np.float64) - wanted
                scale = float(np.sqrt(np.mean(wanted**2))) or 1.0
                error = float(np.sqrt(np.mean(gap**2))) / scale
                worst = max(worst, error if np.isfinite(error) else float("inf"))
        return worst

    def _compare(self, model: Path) -> list[OutputParity]:
        return [
            output
            for expected, got in zip(self._expected, self._answers(model), strict=True)
            for output in compare_outputs(self._aim.outputs, expected, got, self._tolerance)
        ]

    def _answers(self, model: Path) -> list[Arrays]:
        session = session_of(model)
        names = [t.name for t in self._aim.outputs]
        return [
            dict(zip(names, session.run(names, dict(feed)), strict=True))
            for feed in self._aim.trials
        ]


def leave_out(
    nodes: Sequence[str],
    build: Callable[[Sequence[str]], Path],
    judge: Judge,
    progress: Progress,
) -> tuple[list[str], list[Attempt], dict[str, float]]:
    """Return the nodes to leave in float so that the rest holds, every attempt, and each's effect.

    ``build`` writes the model with the given nodes quantised. Each node's own effect on the
    outputs puts them in order; how many of the worst must go is found by bisection. The last
    build is the one returned.
    """
    attempts: list[Attempt] = []

    def tried(left: Sequence[str]) -> bool:
        kept = [n for n in nodes if n not in set(left)]
        attempt = judge.attempt(build(kept), len(left))
        attempts.append(attempt)
        shown = "" if attempt.cosine is None else f", cosine {attempt.cosine:.5f}"
        progress(
            f"int8 with {len(left)} of {len(nodes)} nodes in float: error {attempt.error:.3g}"
            f"{shown}, {'holds' if attempt.holds else 'does not hold'}"
        )
        return attempt.holds

    if tried(()):
        return [], attempts, {}
    effects: dict[str, float] = {}
    for number, node in enumerate(nodes, 1):
        effects[node] = judge.distance(build([node]))
        progress(f"effect of {node} ({number}/{len(nodes)}): {effects[node]:.4f}")
    worst = sorted(nodes, key=lambda n: -effects[n])
    low, high = 0, len(worst)  # ``low`` does not hold; ``high`` is all in float
    while high - low > 1:
        middle = (low + high) // 2
        if tried(worst[:middle]):
            high = middle
        else:
            low = middle
    if attempts[-1].left_out != high or not attempts[-1].holds:
        tried(worst[:high])
    return worst[:high], attempts, effects
