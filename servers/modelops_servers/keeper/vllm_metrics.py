"""What vLLM's ``/metrics`` tell of its progress and of its KV cache."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_CACHE = "vllm:cache_config_info"
# Whatever of these moves, the engine has done a step. A long prompt moves the use of the cache,
# piece by piece, and no token.
_MOVING = (
    _RUNNING,
    _WAITING,
    "vllm:kv_cache_usage_perc",
    "vllm:iteration_tokens_total_count",
    "vllm:iteration_tokens_total_sum",
    "vllm:generation_tokens_total",
    "vllm:prompt_tokens_total",
    "vllm:prefix_cache_queries_total",
    "vllm:num_preemptions_total",
    "vllm:request_success_total",
)
_WANTED = frozenset(_MOVING)


@dataclass(frozen=True)
class Reading:
    """One look at an engine; ``cache`` are the labels of its cache's configuration."""

    running: int
    waiting: int
    moving: tuple[float, ...]
    cache: dict[str, str] = field(default_factory=dict)

    @property
    def cache_tokens(self) -> int | None:
        """How many tokens the KV cache holds."""
        tokens = _number(self.cache.get("kv_cache_size_tokens"))
        return self._tokens_in_blocks if tokens is None else tokens

    @property
    def allocated_tokens(self) -> int | None:
        """How many tokens its blocks hold: ``cache_tokens`` counts only whole longest requests.

        Where all layers are alike; else a token takes blocks of several kinds.
        """
        tokens = self._tokens_in_blocks
        return self.cache_tokens if tokens is None else tokens

    @property
    def _tokens_in_blocks(self) -> int | None:
        blocks, size = _number(self.cache.get("num_gpu_blocks")), self.block_tokens
        return None if blocks is None or size is None else blocks * size

    @property
    def block_tokens(self) -> int | None:
        """How many tokens a block of it holds."""
        return _number(self.cache.get("block_size"))

    @property
    def cache_bytes(self) -> int | None:
        """How large each worker's is, where that was asked for."""
        return _number(self.cache.get("kv_cache_memory_bytes"))


def read_metrics(text: str) -> Reading:
    """Read the Prometheus text of one vLLM; several engines in it are added up.

    Raises:
        ValueError: it is not that.
    """
    sums = dict.fromkeys(_MOVING, 0.0)
    seen: set[str] = set()
    cache: dict[str, str] = {}
    for line in text.splitlines():
        if not line.startswith("vllm:"):
            continue
        found = _SAMPLE.match(line)
        if found is None:
            raise ValueError(f"no metric: {line[:80]!r}")
        name = found["name"]
        if name == _CACHE:
            cache = dict(_LABEL.findall(found["labels"] or ""))
        elif name in _WANTED:
            sums[name] += float(found["value"])
            seen.add(name)
    if _RUNNING not in seen or _WAITING not in seen:
        raise ValueError(f"no {_RUNNING} or {_WAITING}")
    return Reading(
        running=int(sums[_RUNNING]),
        waiting=int(sums[_WAITING]),
        moving=tuple(sums.values()),
        cache=cache,
    )


def read_counter(text: str, name: str) -> int | None:
    """Return a counter of the same text, its samples added up; None where it has none."""
    found = (_SAMPLE.match(line) for line in text.splitlines() if line.startswith(name))
    values = [float(m["value"]) for m in found if m is not None and m["name"] == name]
    return int(sum(values)) if values else None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
