"""The same engine, asked directly and through the gateway by turns: direct, gateway, and back.

A round is A B B A, so that whatever drifts falls on both alike, and the two As tell how far apart
two measurements of one and the same thing are.
"""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gateway.processes import note

from streams.client import Address, Clients, Stream

_TOKEN = re.compile(rb'"content":\s?"[^"]')
_RESAMPLES = 1000
_SHARE = 0.95
_FEWEST_ROUNDS = 5


@dataclass
class Turn:
    """What one side did in one turn; times in seconds."""

    first: list[float] = field(default_factory=list)
    """From a request to its first token."""
    gaps: np.ndarray = field(default_factory=lambda: np.empty(0))
    """From a token to the next; tokens that came together have none between them."""
    tokens: int = 0
    seconds: float = 0.0

    @staticmethod
    def of(streams: Sequence[Stream]) -> Turn:
        """Read off what the streams of one turn show."""
        turn = Turn()
        gaps: list[float] = []
        for stream in streams:
            before = None
            for piece, at in zip(stream.pieces, stream.times, strict=True):
                count = len(_TOKEN.findall(piece))
                if not count:
                    continue
                if before is None:
                    turn.first.append(at - stream.began)
                else:
                    gaps.append(at - before)
                gaps += [0.0] * (count - 1)
                turn.tokens += count
                before = at
        turn.gaps = np.array(gaps)
        turn.seconds = max(s.times[-1] for s in streams) - min(s.began for s in streams)
        return turn

    def __add__(self, other: Turn) -> Turn:
        return Turn(
            self.first + other.first, np.concatenate((self.gaps, other.gaps)),
            self.tokens + other.tokens, self.seconds + other.seconds,
        )  # fmt: skip


@dataclass(frozen=True)
class Round:
    """Four turns; ``again`` is the direct side's second."""

    direct: Turn
    gateway: Turn
    again: Turn

    @property
    def both(self) -> Turn:
        """The direct side's two turns."""
        return self.direct + self.again


Figure = Callable[[Sequence[tuple[Turn, Turn]]], float]
"""Of pairs (theirs, ours), one a round."""


def added_first_ms(pairs: Sequence[tuple[Turn, Turn]]) -> float:
    """Median over rounds of how much later the median first token came, ms."""
    medians = [statistics.median(b.first) - statistics.median(a.first) for a, b in pairs]
    return statistics.median(medians) * 1e3


def added_gap_ms(pairs: Sequence[tuple[Turn, Turn]]) -> float:
    """How much longer the 99th percentile of all gaps is, ms."""
    return (_p99([b.gaps for _, b in pairs]) - _p99([a.gaps for a, _ in pairs])) * 1e3


def tokens_ratio(pairs: Sequence[tuple[Turn, Turn]]) -> float:
    """Median over rounds of tokens a second, ours over theirs."""
    return statistics.median((b.tokens / b.seconds) / (a.tokens / a.seconds) for a, b in pairs)


@dataclass(frozen=True)
class Found:
    """One figure of all rounds, and what resampling the rounds makes of it."""

    name: str
    value: float
    low: float
    high: float
    lowest: float
    highest: float
    noise: float
    """The same figure of the direct side's second turns beside its first: 0, or 1 for a ratio,
    were it not for noise."""
    bound: float
    at_most: bool
    rounds: int

    @property
    def word(self) -> str:
        """What can be said of the target."""
        if self.rounds < _FEWEST_ROUNDS:
            return "open: too few rounds"
        good = [self.high <= self.bound, self.low > self.bound]
        if not self.at_most:
            good = [self.low >= self.bound, self.high < self.bound]
        return "met" if good[0] else "MISSED" if good[1] else "open: too much spread"


_FIGURES: tuple[tuple[str, Figure, float, bool], ...] = (
    ("added TTFT p50, ms", added_first_ms, 1.5, True),
    ("tokens/s, × direct", tokens_ratio, 0.97, False),
    ("added p99 gap, ms", added_gap_ms, 2.0, True),
)


def judge(rounds: Sequence[Round]) -> list[Found]:
    """Return every figure with its 95 % interval over resampled rounds."""
    pairs = [(r.both, r.gateway) for r in rounds]
    control = [(r.direct, r.again) for r in rounds]
    found = []
    for name, figure, bound, at_most in _FIGURES:
        rng = random.Random(7)
        drawn = sorted(figure(rng.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
        cut = int(_RESAMPLES * (1 - _SHARE) / 2)
        each = [figure([pair]) for pair in pairs]
        found.append(
            Found(
                name, figure(pairs), drawn[cut], drawn[-cut - 1], min(each), max(each),
                figure(control), bound, at_most, len(rounds),
            )
        )  # fmt: skip
    return found


def rounds_of(
    direct: Address,
    gateway: Address,
    requests: Sequence[tuple[bytes, bytes]],
    *,
    each: int,
    stagger: float,
    rounds: int,
    check: Callable[[Stream], Any],
    keep: bool,
) -> list[Round]:
    """Measure; ``requests`` holds for each client what it asks directly, and of the gateway.

    ``check`` is given every stream, and raises where it is not whole. With ``keep`` the clients
    keep their connections, on both sides; ``requests`` must not ask to close them then.
    """
    clients = Clients(keep=keep)

    def turn(address: Address, side: int) -> Turn:
        asked = [pair[side] for pair in requests]
        streams = clients.ask(address, asked, each=each, stagger=stagger)
        for stream in streams:
            check(stream)
        return Turn.of(streams)

    found = []
    for number in range(rounds + 1):
        note(f"{len(requests)} streams: " + (f"round {number} of {rounds}" if number else "warm"))
        first, *ours, second = (
            turn(direct, 0), turn(gateway, 1), turn(gateway, 1), turn(direct, 0),
        )  # fmt: skip
        if number:
            found.append(Round(first, ours[0] + ours[1], second))
    clients.close()
    return found


def _p99(values: Sequence[np.ndarray]) -> float:
    together = np.concatenate(values)
    place = min(len(together) - 1, int(len(together) * 0.99))
    return float(np.partition(together, place)[place])
