"""The runtime called in a loop, in one process, on batches formed as a gateway formed them.

The sizes are drawn from the gateway's histogram of batch sizes. What was in each batch is not
known, so it is approximated: from as many waiting items as there were connections, one is taken at
random together with those nearest to it in length, and all are padded to the longest. Only the
runtime's call is timed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gateway.artifacts import Model
from gateway.bodies import Feed, sentences
from gateway.contenders import BENCHMARKS
from gateway.servers.session import open_session, padded

MIXED = (256, 8, 128)
"""How many distinct requests, and from how many to how many tokens."""
_SAMPLE = re.compile(r"modelops_batch_size_(bucket|sum|count)\{([^}]*)\} (\S+)")


@dataclass(frozen=True)
class BatchSizes:
    """A histogram of batch sizes: how many calls had at most each bound, and items in all."""

    bounds: Sequence[float]
    counts: Sequence[float]
    items: float
    calls: float

    @staticmethod
    def read(metrics: str, model: str) -> BatchSizes:
        """Read one model's histogram from the exposition, summed over its processes."""
        buckets: dict[float, float] = {}
        totals = {"sum": 0.0, "count": 0.0}
        for kind, labels, value in _SAMPLE.findall(metrics):
            if f'model="{model}"' not in labels:
                continue
            if kind == "bucket":
                bound = float(re.findall(r'le="([^"]*)"', labels)[0])
                buckets[bound] = buckets.get(bound, 0.0) + float(value)
            else:
                totals[kind] += float(value)
        bounds = tuple(sorted(buckets))
        return BatchSizes(bounds, tuple(buckets[b] for b in bounds), totals["sum"], totals["count"])

    def since(self, before: BatchSizes) -> BatchSizes:
        """What was added after ``before``."""
        earlier = dict(zip(before.bounds, before.counts, strict=True))
        counts = tuple(
            c - earlier.get(b, 0.0) for b, c in zip(self.bounds, self.counts, strict=True)
        )
        return BatchSizes(self.bounds, counts, self.items - before.items, self.calls - before.calls)

    def draw(self) -> Iterator[int]:
        """Yield sizes with these frequencies and this mean, without end, at no point far from them.

        Within a bucket all calls are given the same place between its ends, the one that makes
        the mean right.
        """
        ends: list[tuple[float, float]] = []
        weights = []
        low, below = 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            high = min(bound, max(low + 1, self.items))
            ends.append((low + 1, high))
            weights.append(count - below)
            low, below = bound, count
        least = sum(w * a for w, (a, _) in zip(weights, ends, strict=True))
        most = sum(w * b for w, (_, b) in zip(weights, ends, strict=True))
        place = min(1.0, max(0.0, (self.items - least) / (most - least))) if most > least else 0.0
        due, rest = [0.0] * len(ends), [0.0] * len(ends)
        while True:
            due = [d + w / self.calls for d, w in zip(due, weights, strict=True)]
            chosen = max(range(len(ends)), key=due.__getitem__)
            due[chosen] -= 1
            a, b = ends[chosen]
            exact = a + place * (b - a) + rest[chosen]
            rest[chosen] = exact - int(exact)
            yield int(exact)


def measure(
    model: Model, sizes: BatchSizes, *, threads: int, connections: int, seconds: float
) -> dict[str, float]:
    """Run this module as a process; return items a second, processor time, mean batch."""
    command = [sys.executable, "-m", "gateway.runtime_alone", str(model.onnx)]
    command += [json.dumps(asdict(sizes)), str(threads), str(connections), str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=BENCHMARKS)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def gathered(feeds: Sequence[Feed], sizes: Iterator[int], waiting: int) -> Iterator[Feed]:
    """Yield batches out of ``waiting`` items at a time, like lengths together."""
    rng = random.Random(7)
    turn = 0
    pool: list[Feed] = []
    for size in sizes:
        while len(pool) < max(waiting, size):
            pool.append(feeds[turn % len(feeds)])
            turn += 1
        wanted = _length(rng.choice(pool))
        pool.sort(key=lambda feed: abs(_length(feed) - wanted))
        chosen, pool = pool[:size], pool[size:]
        yield padded(chosen)


def _length(feed: Feed) -> int:
    return int(next(iter(feed.values())).shape[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("sizes", type=json.loads)
    parser.add_argument("threads", type=int)
    parser.add_argument("connections", type=int)
    parser.add_argument("seconds", type=float)
    options = parser.parse_args()
    session = open_session(str(options.model), options.threads)
    outputs = [o.name for o in session.get_outputs()]
    names = [i.name for i in session.get_inputs()]
    sizes = BatchSizes(**options.sizes).draw()
    batches = gathered(sentences(names, *MIXED), sizes, options.connections)
    for _ in range(3):
        session.run(outputs, next(batches))
    items = calls = 0
    busy = used = 0.0
    while busy < options.seconds:
        batch = next(batches)
        began, cpu = time.perf_counter(), time.process_time()
        session.run(outputs, batch)
        busy += time.perf_counter() - began
        used += time.process_time() - cpu
        items += len(next(iter(batch.values())))
        calls += 1
    told = {"rps": items / busy, "mean_batch": items / calls, "cpu_us": used / items * 1e6}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
