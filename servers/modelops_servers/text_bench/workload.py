"""What every type of KV cache is given: prompts of fixed, differing lengths, and a fixed cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modelops.errors import InputError, MissingEnvironmentError
from modelops.text_benchmark import TextBenchRequest
from modelops_servers.keeper.client import EngineClient, UnansweredError
from modelops_servers.keeper.geometry import Geometry
from modelops_servers.keeper.kv_cache import given_value
from modelops_servers.text_bench.passages import PASSAGES

# Of the longest prompt; the longest comes first, so that a small crowd does not fit either.
_QUARTERS = (4, 1, 3, 2)
_BF16_BYTES = 2
# vLLM's own choices; where it chooses otherwise, what it then does is measured all the same.
_BLOCK, _BLOCKS = 128, {"cuda": 16}
_BLOCK_FLAG = "--block-size"
_DRIFT_TOKENS = 48
_STEP = 37
_ANSWER_SECONDS = 120.0
_OK = 200

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """Lengths in tokens; the loads take prompts of ``lengths`` in turn.

    ``block_tokens`` is how many tokens a block of the cache is taken to hold.
    """

    concurrency: int
    crowd: int
    requests: int
    lengths: tuple[int, ...]
    output_tokens: int
    drift_lengths: tuple[int, ...]
    drift_output_tokens: int
    block_tokens: int

    @property
    def max_model_len(self) -> int:
        """The longest sequence of all."""
        longest = max(self.lengths) + self.output_tokens
        return max(longest, max(self.drift_lengths) + self.drift_output_tokens + 1)

    @property
    def cache_tokens(self) -> int:
        """What ``concurrency`` of the longest sequences need, in whole blocks, and a spare one.

        Or a little more, where that makes a crowd begin which then cannot go on.
        """
        block = self.block_tokens
        least = self.concurrency * _in_blocks(self.max_model_len, block)
        for room in range(least, 2 * least, block):
            if self.grown_tokens(self.crowd, block, room) > room:
                return room + block
        return least + block

    def grown_tokens(self, concurrency: int, block_tokens: int, room: int) -> int:
        """Return what those of the first ``concurrency`` requests that begin come to hold at once.

        A request begins where its whole prompt finds room. All answers are as long, so the first
        ends only when the others have nearly grown to their end.
        """
        begun = grown = 0
        for index in range(concurrency):
            begun += _in_blocks(self.length(index), block_tokens)
            if begun > room:
                break
            grown += _in_blocks(self.length(index) + self.output_tokens, block_tokens)
        return grown

    def length(self, index: int) -> int:
        """Return how long the prompt of request ``index`` is."""
        return self.lengths[index % len(self.lengths)]


def plan(request: TextBenchRequest, platform: str) -> Workload:
    """Return the workload that ``request`` means where the engine computes on ``platform``."""
    given = given_value(request.options.engine_args, _BLOCK_FLAG) or ""
    lengths = tuple(request.input_tokens * quarters // 4 for quarters in _QUARTERS)
    short, long = min(lengths), max(lengths)
    return Workload(
        concurrency=request.concurrency,
        crowd=request.crowd,
        requests=request.measured_requests,
        lengths=lengths,
        output_tokens=request.output_tokens,
        drift_lengths=(short,) * len(PASSAGES) + (long,) * len(PASSAGES),
        drift_output_tokens=min(_DRIFT_TOKENS, request.output_tokens),
        block_tokens=int(given) if given.isdecimal() else _BLOCKS.get(platform, _BLOCK),
    )


def cache_bytes(
    workload: Workload, geometry: Geometry, tensor_parallel: int, pipeline_parallel: int
) -> int:
    """Return the bytes, of each worker, that ``workload.cache_tokens`` take in bf16.

    Raises:
        InputError: how large a token is does not follow from the model's configuration.
    """
    values = geometry.values_per_token(tensor_parallel, pipeline_parallel)
    if values is None:
        raise InputError(
            "how large a token of this model is in the KV cache does not follow from its "
            "config.json: layers differ, or keep something else than keys and values",
            hint="say how large the cache is to be: --kv-cache-gib",
        )
    return workload.cache_tokens * values * _BF16_BYTES


class Prompts:
    """Token ids cut from the passages, by the model's own tokenizer."""

    def __init__(self, passages: Sequence[Tokens]) -> None:
        self._passages = passages
        self._all = tuple(token for passage in passages for token in passage)

    @classmethod
    async def of(cls, client: EngineClient, model: str) -> Prompts:
        """Let the engine tokenize the passages.

        Raises:
            MissingEnvironmentError: it does not tokenize.
        """
        passages = []
        for passage in PASSAGES:
            try:
                asked = {"model": model, "prompt": passage, "add_special_tokens": False}
                status, body = await client.post("/tokenize", asked, _ANSWER_SECONDS, "bench")
                passages.append(_tokens_in(body) if status == _OK else ())
            except UnansweredError as error:
                raise MissingEnvironmentError(f"the engine does not tokenize: {error}") from error
        if not all(passages):
            raise MissingEnvironmentError("the engine's /tokenize gives no tokens")
        return cls(passages)

    def load(self, workload: Workload, first: int, count: int) -> Iterator[Tokens]:
        """Yield prompts ``first``, ``first`` + 1, …: each begins elsewhere in the text."""
        for index in range(count):
            begin = (first + index) * _STEP
            yield self._cut(begin, workload.length(index))

    def drift(self, workload: Workload) -> list[Tokens]:
        """Return the prompts whose answers are compared: each passage from its start, cut."""
        starts = [0]
        for passage in self._passages[:-1]:
            starts.append(starts[-1] + len(passage))
        begins = starts * (len(workload.drift_lengths) // len(starts))
        return [
            self._cut(begin, length)
            for begin, length in zip(begins, workload.drift_lengths, strict=True)
        ]

    def _cut(self, begin: int, length: int) -> Tokens:
        return tuple(self._all[(begin + i) % len(self._all)] for i in range(length))


def room(cache_tokens: int | None, block_tokens: int | None) -> int | None:
    """Return how many tokens find room in a cache; vLLM keeps one block of it to itself."""
    if cache_tokens is None or block_tokens is None:
        return None
    return cache_tokens - block_tokens


def _tokens_in(body: bytes) -> Tokens:
    import orjson

    try:
        tokens = orjson.loads(body)["tokens"]
        return tuple(int(token) for token in tokens)
    except (ValueError, LookupError, TypeError) as error:
        raise MissingEnvironmentError(f"the engine's /tokenize says no tokens: {error}") from error


def _in_blocks(tokens: int, block: int) -> int:
    return -(-tokens // block) * block
