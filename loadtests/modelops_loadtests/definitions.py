"""What every figure of a load test means, in one place: from samples to seconds, for each request.

A request that has no such time is NaN, never zero. ``due`` is when the request was scheduled, in
an open loop, else when it was sent: latency counts from there, so that a server that makes later
requests wait is not flattered ("coordinated omission", G. Tene, *How not to measure latency*).

The names are those of the field (TTFT, ITL, TPOT: NVIDIA's *LLM inference benchmarking* guide,
``vllm bench serve``, MLPerf Inference); where tools differ, it is said below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from modelops_loadtests.samples import Floats, Mask, SampleTable


def e2e(samples: SampleTable) -> Floats:
    """From due to the last token of a stream; of a whole reply, to its last byte."""
    last = samples["last_token"]
    return np.where(np.isnan(last), samples["end"], last) - samples.due


def ttft(samples: SampleTable) -> Floats:
    """Time to first token: from due to the first chunk with generated text, reasoning included."""
    return samples["first_token"] - samples.due


def ttft_from_sent(samples: SampleTable) -> Floats:
    """Time to first token as closed-loop tools count it: from when the request was sent."""
    return samples["first_token"] - samples["sent"]


def first_output(samples: SampleTable) -> Floats:
    """From due to the first chunk that a user sees: content or a tool call, not reasoning."""
    return samples["first_output"] - samples.due


def first_byte(samples: SampleTable) -> Floats:
    """From due to the reply's first byte."""
    return samples["first_byte"] - samples.due


def queued(samples: SampleTable) -> Floats:
    """From scheduled to sent: what the load generator itself held a request back."""
    return samples["sent"] - samples["scheduled"]


def tpot(samples: SampleTable) -> Floats:
    """Time per output token: (last token − first token) / (output tokens − 1).

    It counts tokens, not chunks: with speculative decoding a chunk carries several. Of a reply of
    fewer than two tokens there is none (some tools say 0).
    """
    tokens = samples["output_tokens"]
    several = np.where(tokens >= 2, tokens - 1, np.nan)
    return (samples["last_token"] - samples["first_token"]) / several


def itl(samples: SampleTable) -> Floats:
    """Inter-token latency: every gap between two chunks of a stream, of all streams in a row.

    These are raw gaps, as a reader sees them; they are not divided by the tokens in a chunk.
    ``itl_tokens`` has those beside them.
    """
    ends = samples.chunks.gap_ends
    return samples.chunks.at[ends] - samples.chunks.at[ends - 1]


def itl_tokens(samples: SampleTable) -> Floats:
    """Tokens of the chunk that ends each gap of ``itl``; NaN where not known."""
    return samples.chunks.tokens[samples.chunks.gap_ends]


def worst_gap(samples: SampleTable) -> Floats:
    """Each request's longest gap between two chunks: what it is judged by on an ITL objective."""
    chunks = samples.chunks
    worst = np.full(len(samples), -np.inf)
    np.maximum.at(worst, chunks.stream[chunks.gap_ends], itl(samples))
    return np.where(np.isinf(worst), np.nan, worst)


def output_tokens_per_s(samples: SampleTable) -> Floats:
    """Output tokens per second of one request, over its whole e2e: what its user experiences."""
    took = e2e(samples)
    return samples["output_tokens"] / np.where(took > 0, took, np.nan)


def tokens_per_chunk(samples: SampleTable) -> float | None:
    """Output tokens a chunk, of the streams whose tokens are known; None without one."""
    chunks, tokens = samples.chunks.counts, samples["output_tokens"]
    known = (chunks > 0) & ~np.isnan(tokens)
    return float(tokens[known].sum() / chunks[known].sum()) if known.any() else None


@dataclass(frozen=True)
class Timing:
    """A timing that may be gated: its values, and each request's own where those are others."""

    values: Callable[[SampleTable], Floats]
    meaning: str
    of_request: Callable[[SampleTable], Floats] | None = None

    def own(self, samples: SampleTable) -> Floats:
        """Return one value for each request."""
        return (self.of_request or self.values)(samples)


TIMINGS: Mapping[str, Timing] = {
    "e2e": Timing(e2e, "from when the request was due to its last token, or last byte"),
    "ttft": Timing(ttft, "time to first token, from when the request was due"),
    "ttft_from_sent": Timing(ttft_from_sent, "time to first token, from when it was sent"),
    "first_output": Timing(first_output, "from due to the first token that is not reasoning"),
    "tpot": Timing(tpot, "time per output token after the first"),
    "itl": Timing(itl, "gap between two chunks of a stream", worst_gap),
    "first_byte": Timing(first_byte, "from when the request was due to the reply's first byte"),
    "queued": Timing(queued, "from scheduled to sent: held back by the load generator"),
}

LOWER_BOUNDED: Mapping[str, str] = {
    "qps": "requests completed without error, per second",
    "items_per_s": "inputs answered, per second",
    "output_tokens_per_s": "tokens generated, per second",
    "input_tokens_per_s": "tokens of the inputs answered, per second",
    "goodput_rps": "requests that met every latency objective, per second",
    "goodput_share": "share of the requests that met every latency objective",
}

_METRIC = re.compile(rf"({'|'.join(TIMINGS)})_(p\d{{1,2}}(?:\.\d{{1,3}})?|mean|max)_ms\Z")


def timing_of(metric: str) -> tuple[str, str] | None:
    """Split such as ``ttft_p95_ms`` into timing and statistic; None where it is no timing's."""
    match = _METRIC.match(metric)
    return None if match is None or match[2] in ("p0", "p00") else (match[1], match[2])


def latency_bounds(objectives: Mapping[str, float]) -> dict[str, float]:
    """Return the loosest bound of each timing, in seconds, of objectives by metric.

    That is what one request is held to: with a p50 of 100 ms and a p99 of 300 asked, one that
    takes 200 is among those that were allowed for.
    """
    bounds: dict[str, float] = {}
    for metric, bound in objectives.items():
        if parts := timing_of(metric):
            bounds[parts[0]] = max(bound / 1000, bounds.get(parts[0], 0.0))
    return bounds


def met(samples: SampleTable, bounds: Mapping[str, float]) -> Mask | None:
    """Return which requests succeeded within all ``bounds`` (timing → seconds).

    A timing that one request cannot have (the TPOT of a reply of one token) is not held against
    it. None without a bound, or where no request has a timing that is bounded.
    """
    if not bounds:
        return None
    good = samples.having("ok")
    for name, bound in bounds.items():
        own = TIMINGS[name].own(samples)
        if np.isnan(own).all():
            return None
        good &= np.isnan(own) | (own <= bound)
    return good
