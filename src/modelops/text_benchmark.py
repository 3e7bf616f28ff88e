"""What ``modelops bench`` of a language model is asked, and what it finds, by KV cache type."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from modelops.config import KvCacheDtype, VllmOptions
from modelops.signature import Frozen

State = Literal["measured", "refused", "failed"]


class TextBenchRequest(Frozen):
    """A language model behind one engine, started anew with each type of KV cache.

    ``concurrency`` is how many requests are out at a time where all fit into the cache; twice as
    many where bf16 must not hold them. ``requests`` is how many are measured at each of the two,
    by default four times ``concurrency``. Prompts have up to ``input_tokens`` tokens, answers
    exactly ``output_tokens``. ``kv_cache_gib`` is the cache of each worker; by default what
    ``concurrency`` of the longest requests need in bf16. ``options`` are further ones of the
    engine; the type, the size of the cache and the longest request are decided here. ``output``
    is the report's folder, by default a new one below ``reports``.
    """

    artifact: Path
    engine: Literal["vllm"] = "vllm"
    kv_cache_dtypes: tuple[KvCacheDtype, ...] = Field(default=("auto",), min_length=1)
    concurrency: int = Field(default=8, ge=1, le=1024)
    requests: int | None = Field(default=None, ge=1, le=100_000)
    input_tokens: int = Field(default=256, ge=16, le=1_000_000)
    output_tokens: int = Field(default=128, ge=8, le=1_000_000)
    kv_cache_gib: float | None = Field(default=None, gt=0, le=1024)
    options: VllmOptions = VllmOptions()
    output: Path | None = None

    @property
    def crowd(self) -> int:
        """How many requests are out at a time where bf16 must not hold them."""
        return 2 * self.concurrency

    @property
    def measured_requests(self) -> int:
        """How many requests are measured at each concurrency."""
        return 4 * self.concurrency if self.requests is None else self.requests

    @model_validator(mode="after")
    def _meant(self) -> Self:
        if len(set(self.kv_cache_dtypes)) != len(self.kv_cache_dtypes):
            raise ValueError("a type of KV cache is named twice")
        if self.measured_requests < self.crowd:
            raise ValueError(
                f"requests is {self.requests}, fewer than the {self.crowd} that are out at a time "
                "where the cache is too small (twice the concurrency)"
            )
        return self


class Spread(Frozen):
    """Milliseconds: the smallest value that so many percent do not exceed, and the largest."""

    p50: float
    p95: float
    max: float


class Load(Frozen):
    """Requests in a closed loop, ``concurrency`` at a time; figures are of those ``completed``.

    ``tpot_ms`` is a request's time from its first to its last token over the tokens after its
    first chunk, ``gap_ms`` the time between two chunks, which may hold several tokens.
    ``grown_tokens`` is what the first requests that find room for their prompts come to hold at
    once, in whole blocks; where the cache holds less, the engine ``must_preempt``.
    ``preemptions`` is what it counted; None where it does not say.
    """

    concurrency: int
    requests: int
    completed: int
    failed: int
    failures: tuple[str, ...]
    seconds: float
    prompt_tokens: int
    output_tokens: int
    tokens_per_second: float | None
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    gap_ms: Spread | None
    tokens_per_chunk: float | None
    grown_tokens: int | None
    must_preempt: bool
    preemptions: int | None


class Difference(Frozen):
    """Absolute differences of log-probabilities, in nats, over so many ``positions``."""

    positions: int
    mean: float
    max: float


class Drift(Frozen):
    """Greedy answers beside those of ``against``, asked one at a time.

    ``same_tokens`` of ``tokens`` stand before the first that differs, prompt by prompt;
    ``diverged_at`` is the place of that one in each answer, None where there is none.
    ``decoded`` is over those same tokens, as they were generated; ``forced`` over every position
    of prompt and answer of ``against``, given as a prompt, so that one divergence spoils nothing
    behind it; ``same_top`` is the share of those at which the likeliest token is the same.
    """

    against: str
    prompts: int
    tokens: int
    same_tokens: int
    diverged_at: tuple[int | None, ...]
    decoded: Difference | None
    forced: Difference
    same_top: float

    @property
    def same_share(self) -> float:
        """The share, 0 to 1, of tokens before the first that differs."""
        return self.same_tokens / self.tokens


class Cache(Frozen):
    """What the engine allocated for keys and values in each worker."""

    bytes: int | None
    tokens: int | None
    block_tokens: int | None
    bytes_per_value: float | None
    tokens_per_gib: int | None


class TextBenchRow(Frozen):
    """One type of KV cache: ``refused`` before a start, ``failed`` after one, or ``measured``.

    ``fits`` is where all requests find room, ``tight`` where bf16 cannot hold them. ``repeat``,
    of the first type measured, is its drift against itself: what the machine alone does.
    """

    kv_cache_dtype: KvCacheDtype
    state: State
    why: str | None = None
    start_seconds: float | None = None
    cache: Cache | None = None
    fits: Load | None = None
    tight: Load | None = None
    drift: Drift | None = None
    repeat: Drift | None = None


class TextBenchResult(Frozen):
    """One run; ``files`` are the report's, ``notes`` what was decided for it."""

    kind: Literal["text-bench"] = "text-bench"
    schema_version: Literal[1] = 1
    model: str
    digest: str | None
    engine: str
    build: str
    platform: str
    versions: dict[str, str]
    machine: dict[str, str]
    started_at: str
    seconds: float
    kv_cache_bytes: int
    concurrency: int
    crowd: int
    requests: int
    prompt_tokens: tuple[int, ...]
    output_tokens: int
    drift_prompt_tokens: tuple[int, ...]
    drift_output_tokens: int
    max_model_len: int
    engine_options: dict[str, object]
    rows: tuple[TextBenchRow, ...]
    notes: tuple[str, ...]
    command: str = ""
    files: dict[str, str] = Field(default_factory=dict)

    @property
    def measured(self) -> tuple[TextBenchRow, ...]:
        """The rows with figures."""
        return tuple(row for row in self.rows if row.state == "measured")

    @property
    def exit_code(self) -> int:
        """1 where a type that was started failed, else 0."""
        return int(any(row.state == "failed" for row in self.rows))
