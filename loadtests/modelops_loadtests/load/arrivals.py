"""When the requests of an open loop are due: seeded schedules, made ahead, split over processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from modelops.errors import UsageError

Floats = npt.NDArray[np.float64]
Lengths = npt.NDArray[np.int64]
MAX_ARRIVALS = 20_000_000
_BLOCK = 4096


@dataclass(frozen=True)
class Schedule:
    """Arrivals in ascending order.

    ``at`` are seconds from the start of the stage, ``numbers`` the place of each in the whole
    schedule, whichever process sends it. A trace also says how long each prompt and each answer
    is (0: it does not say).
    """

    at: Floats
    numbers: npt.NDArray[np.int64]
    input_tokens: Lengths | None = None
    output_tokens: Lengths | None = None

    @classmethod
    def of(
        cls, at: Floats, input_tokens: Lengths | None = None, output_tokens: Lengths | None = None
    ) -> Self:
        """Return the whole schedule with these arrivals."""
        return cls(at, np.arange(len(at), dtype=np.int64), input_tokens, output_tokens)

    def __len__(self) -> int:
        return len(self.at)

    def part(self, process: int, processes: int) -> Self:
        """Return the arrivals that one of several processes sends: every ``processes``-th.

        One schedule is dealt out, rather than one made for each process, so that what arrives at
        the server is the process that was asked for: a sum of constant streams is not constant,
        and a sum of bursty ones is less bursty.
        """
        lengths = (self.input_tokens, self.output_tokens)
        dealt = [None if column is None else column[process::processes] for column in lengths]
        return type(self)(
            self.at[process::processes], self.numbers[process::processes], dealt[0], dealt[1]
        )

    def count(self, start: float, end: float) -> int:
        """Return how many are due from ``start`` up to ``end``."""
        return int(np.searchsorted(self.at, end) - np.searchsorted(self.at, start))


def arrivals(
    rate: float,
    seconds: float,
    *,
    kind: str = "poisson",
    burstiness: float = 1.0,
    seed: int = 0,
    stage: int = 0,
    ramp: float = 0.0,
) -> Schedule:
    """Return the arrivals of ``seconds`` at ``rate`` a second.

    Gaps are equal (``constant``), exponential (``poisson``), or gamma distributed with the shape
    ``burstiness`` (its squared coefficient of variation is 1 / burstiness, as in ``vllm bench
    serve``). During the first ``ramp`` seconds the rate grows evenly from nothing. A longer
    schedule from the same seed begins with the shorter one.

    Raises:
        UsageError: these are more arrivals than fit.
    """
    expected = rate * max(seconds - ramp / 2, ramp / 2)
    if expected > MAX_ARRIVALS:
        raise UsageError(
            f"{rate:g} requests/s for {seconds:g} s are {expected:,.0f} requests; at most "
            f"{MAX_ARRIVALS:,} can be planned",
            hint="a lower --rate, or a shorter --duration or --max-duration",
        )
    gaps = _gaps(kind, burstiness, np.random.default_rng([seed, stage]))
    # Gaps of mean 1 are laid on the expected number of arrivals, then mapped back to time: this
    # gives the asked process at a rate that changes, too.
    parts: list[Floats] = []
    done = 0.0
    while not parts or parts[-1][-1] < seconds:
        counts = done + np.cumsum(gaps(_BLOCK))
        parts.append(_time_of(counts, rate, ramp))
        done = float(counts[-1])
    at = np.concatenate(parts)
    return Schedule.of(at[at < seconds])


def _gaps(kind: str, shape: float, rng: np.random.Generator) -> Callable[[int], Floats]:
    if kind == "constant":
        return lambda n: np.ones(n)
    if kind == "poisson":
        return lambda n: rng.standard_exponential(n)
    return lambda n: rng.standard_gamma(shape, n) / shape


def _time_of(counts: Floats, rate: float, ramp: float) -> Floats:
    """Return when so many arrivals are expected: the inverse of the integral of the rate."""
    in_ramp = rate * ramp / 2
    growing = np.sqrt(2 * ramp * np.minimum(counts, in_ramp) / rate)
    return np.where(counts < in_ramp, growing, ramp + (counts - in_ramp) / rate)
