"""All that is measured of one engine that is ready, in one order for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.errors import EngineError
from modelops.progress import Progress
from modelops.text_benchmark import Cache, Load
from modelops_servers.keeper.client import EngineClient, UnansweredError
from modelops_servers.keeper.vllm_metrics import Reading, read_counter, read_metrics
from modelops_servers.text_bench import drift, load
from modelops_servers.text_bench.drift import Seen
from modelops_servers.text_bench.workload import Prompts, Workload, room

_PREEMPTIONS = "vllm:num_preemptions_total"
_METRICS_SECONDS = 30.0
_WARM_TOKENS = 16
_TOLD_SECONDS = 5.0


@dataclass(frozen=True)
class Figures:
    """``again`` is the same questions once more, where nothing came before to compare with."""

    cache: Cache
    fits: Load
    tight: Load
    seen: Seen
    again: Seen | None


async def measure(
    socket: Path,
    model: str,
    kv_cache: dict[str, Any],
    workload: Workload,
    baseline: Seen | None,
    progress: Progress,
) -> Figures:
    """Warm it up, then measure drift, what fits, and what is too much.

    Raises:
        EngineError: it does not answer, or not a single request was answered whole.
    """
    async with EngineClient(socket=socket) as client:
        prompts = await Prompts.of(client, model)
        cache = Cache(
            bytes=kv_cache.get("bytes"),
            tokens=kv_cache.get("tokens"),
            block_tokens=_reading(await _metrics(client)).block_tokens,
            bytes_per_value=kv_cache.get("bytes_per_value"),
            tokens_per_gib=kv_cache.get("tokens_per_gib"),
        )
        progress("warming up")
        warm = prompts.load(workload, 0, workload.crowd)
        await load.run(
            socket, model, warm, min(_WARM_TOKENS, workload.output_tokens), workload.crowd
        )
        seen, again = await _look(client, model, prompts, workload, baseline, progress)
        loads = []
        for place, concurrency in enumerate((workload.concurrency, workload.crowd), 1):
            loads.append(
                await _load(
                    client, socket, model, prompts, workload, cache, concurrency, place, progress
                )
            )
    return Figures(
        cache=cache,
        fits=loads[0],
        tight=loads[1],
        seen=seen,
        again=again,
    )


async def _look(
    client: EngineClient,
    model: str,
    prompts: Prompts,
    workload: Workload,
    baseline: Seen | None,
    progress: Progress,
) -> tuple[Seen, Seen | None]:
    asked = prompts.drift(workload)

    async def look(against: Seen | None, what: str) -> Seen:
        tell = _telling(progress, f"{what}: {{}} of {len(asked)} prompts, one at a time")
        return await drift.look(client, model, asked, workload.drift_output_tokens, against, tell)

    seen = await look(baseline, "greedy answers")
    return seen, await look(seen, "greedy answers once more") if baseline is None else None


async def _load(
    client: EngineClient,
    socket: Path,
    model: str,
    prompts: Prompts,
    workload: Workload,
    cache: Cache,
    concurrency: int,
    place: int,
    progress: Progress,
) -> Load:
    text = f"{{}} of {workload.requests} requests answered, {concurrency} at a time"
    before = await _metrics(client)
    answers, failures, seconds = await load.run(
        socket,
        model,
        prompts.load(workload, place * workload.requests, workload.requests),
        workload.output_tokens,
        concurrency,
        _telling(progress, text),
    )
    after = await _metrics(client)
    if not answers:
        raise EngineError(f"no request was answered whole: {failures[0]}")
    counts = (read_counter(before, _PREEMPTIONS), read_counter(after, _PREEMPTIONS))
    there, grown = room(cache.tokens, cache.block_tokens), None
    if there is not None and cache.block_tokens is not None:
        grown = workload.grown_tokens(concurrency, cache.block_tokens, there)
    return Load(
        **load.figures(answers, failures, seconds),
        concurrency=concurrency,
        grown_tokens=grown,
        must_preempt=grown is not None and there is not None and grown > there,
        preemptions=None if counts[0] is None or counts[1] is None else counts[1] - counts[0],
    )


def _telling(progress: Progress, text: str) -> Callable[[int], None]:
    """Return what tells every few seconds how many there are by now."""
    told = time.monotonic()

    def tell(count: int) -> None:
        nonlocal told
        if time.monotonic() - told >= _TOLD_SECONDS:
            told = time.monotonic()
            progress(text.format(count))

    progress(text.format(0))
    return tell


async def _metrics(client: EngineClient) -> str:
    try:
        _, body = await client.get("/metrics", _METRICS_SECONDS)
    except UnansweredError as error:
        raise EngineError(f"the engine's metrics were not answered: {error}") from error
    return body.decode("utf-8", "replace")


def _reading(text: str) -> Reading:
    try:
        return read_metrics(text)
    except ValueError as error:
        raise EngineError(f"the engine's metrics cannot be read: {error}") from error
