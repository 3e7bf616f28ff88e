"""How far what the client measured is from what a mock server really wrote when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelops_loadtests.samples import Floats, SampleTable


@dataclass(frozen=True)
class Errors:
    """The client's figures minus the mock's, in seconds: of each stream, and of each gap.

    ``unmatched`` counts successes of the client that the mock has no record of, or another number
    of chunks: their errors cannot be told.
    """

    ttft: Floats
    itl: Floats
    unmatched: int


def errors(samples: SampleTable, requests: Iterable[Mapping[str, Any]]) -> Errors:
    """Set the streams that succeeded beside the mock's stamps, ``requests`` of GET /stamps.

    The bytes of a chunk left between two stamps, one before and one after its write. On a busy
    machine the writer may rest between them, and no better is known: an error is the distance
    from what both allow, zero inside.
    """
    written = {key: r for r in requests if (key := _key(r["id"])) is not None}
    ok = samples.where(samples.having("ok") & (samples.chunks.counts > 0))
    ttft: list[Floats] = []
    itl: list[Floats] = []
    unmatched = 0
    offsets = ok.chunks.offsets
    for place in range(len(ok)):
        record = written.get((ok["process"][place], ok["number"][place]))
        seen = ok.chunks.at[offsets[place] : offsets[place + 1]]
        if record is None or len(record["wrote"]) != len(seen):
            unmatched += 1
            continue
        before, after = np.array(record["writing"]), np.array(record["wrote"])
        arrived = record["arrived"]
        first = np.array([ok["first_token"][place] - ok["sent"][place]])
        ttft.append(outside(first, before[:1] - arrived, after[:1] - arrived))
        itl.append(outside(np.diff(seen), before[1:] - after[:-1], after[1:] - before[:-1]))
    none = np.empty(0)
    return Errors(np.concatenate([none, *ttft]), np.concatenate([none, *itl]), unmatched)


def outside(values: Floats, low: Floats, high: Floats) -> Floats:
    """Return how far each value is below ``low`` (negative) or above ``high``; zero between."""
    return np.minimum(values - low, 0.0) + np.maximum(values - high, 0.0)


def spread(errors_s: Floats) -> dict[str, float | None]:
    """Return p50 and p99 of the sizes of errors, in milliseconds; None without one."""
    if not len(errors_s):
        return {"p50": None, "p99": None}
    p50, p99 = np.percentile(np.abs(errors_s) * 1000, (50, 99))
    return {"p50": round(float(p50), 4), "p99": round(float(p99), 4)}


def _key(name: str | None) -> tuple[float, float] | None:
    """Read the process and number of an ``X-Request-Id``: ``<run>-<process>-<number>``."""
    parts = (name or "").rsplit("-", 2)
    if len(parts) < 3 or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    return float(parts[1]), float(parts[2])
