"""What every load tester is asked to read, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops_loadtests.accuracy import outside
from modelops_loadtests.mock import Script

Floats = npt.NDArray[np.float64]

TOKENS = 50
# vllm bench takes a chat's first chunk, which has a role and no text, for its first token.
SCRIPT = Script(ttft_ms="20..60", interval_ms=20, role_chunk=False)
STREAM_SECONDS = 1.02
WARMUP_SECONDS = 1.0


@dataclass(frozen=True)
class Load:
    """So many streams at once, each again and again until about ``seconds`` are over."""

    streams: int
    seconds: float

    @property
    def requests(self) -> int:
        """How many requests that is, for tools that are told a number."""
        return self.streams * max(2, round((self.seconds + WARMUP_SECONDS) / STREAM_SECONDS))


@dataclass
class Seen:
    """What a tool says of one request: seconds. ``itl`` has its gaps, or one mean of them.

    ``request`` is the end of the id that it sent, or the id of the answer.
    """

    request: str
    ttft: float
    itl: list[float]


@dataclass
class Told:
    """What a tool came to; ``verdict`` where it judges itself."""

    seen: list[Seen]
    verdict: str | None = None
    reasons: list[str] = field(default_factory=list)


def paired(seen: list[Seen], requests: list[dict[str, Any]]) -> list[tuple[Seen, dict[str, Any]]]:
    """Return each request that a tool saw with the mock's record of it.

    What began in the first second is left out, for every tool: all connect then.

    Raises:
        RuntimeError: the mock knows no such request.
    """
    records = {f"mock-{r['number']}": r for r in requests}
    records |= {"-".join(r["id"].split("-")[-2:]): r for r in requests if r["id"]}
    if unknown := [s.request for s in seen if s.request not in records]:
        raise RuntimeError(f"the mock had no request {unknown[0]}")
    start = min(r["arrived"] for r in requests) + WARMUP_SECONDS
    pairs = [(s, records[s.request]) for s in seen]
    return [(s, r) for s, r in pairs if r["arrived"] >= start]


def errors(pairs: list[tuple[Seen, dict[str, Any]]]) -> tuple[Floats, Floats]:
    """Return the errors of TTFT and of ITL in seconds; of the mean gap, where that is all."""
    ttft, itl = [np.empty(0)], [np.empty(0)]
    for seen, record in pairs:
        before, after = np.array(record["writing"]), np.array(record["wrote"])
        arrived = record["arrived"]
        first = np.array([seen.ttft])
        ttft.append(outside(first, before[:1] - arrived, after[:1] - arrived))
        low, high = before[1:] - after[:-1], after[1:] - before[:-1]
        gaps = np.array(seen.itl)
        if len(gaps) == 1:
            low, high = (np.array([bound]) for bound in _mean_gap(before, after))
        elif len(gaps) < len(low):
            raise RuntimeError(f"it tells of {len(gaps)} gaps, {len(low)} were written")
        itl.append(outside(gaps[: len(low)], low, high))
    return np.concatenate(ttft), np.concatenate(itl)


def _mean_gap(before: Floats, after: Floats) -> tuple[float, float]:
    number = len(before) - 1
    return (before[-1] - after[0]) / number, (after[-1] - before[0]) / number
