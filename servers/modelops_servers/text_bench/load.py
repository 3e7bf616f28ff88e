"""A closed loop of requests, and the figures of those that were answered whole."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from modelops.text_benchmark import Spread
from modelops_servers.text_bench.stream import Answer, RequestFailedError, ask
from modelops_servers.text_bench.workload import Tokens

_SHOWN_FAILURES = 5


async def run(
    socket: Path,
    model: str,
    prompts: Iterable[Tokens],
    output_tokens: int,
    concurrency: int,
    on_end: Callable[[int], None] = lambda _count: None,
) -> tuple[list[Answer], list[str], float]:
    """Send ``prompts``, ``concurrency`` at a time; return answers, failures, and seconds.

    ``on_end`` is called with how many have ended, after each.
    """
    waiting = iter(prompts)
    answers: list[Answer] = []
    failures: list[str] = []
    connector = aiohttp.UnixConnector(str(socket), limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def keep_asking() -> None:
            for prompt in waiting:
                try:
                    answers.append(await ask(session, model, prompt, output_tokens))
                except RequestFailedError as error:
                    failures.append(str(error))
                on_end(len(answers) + len(failures))

        began = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(keep_asking())
        return answers, failures, time.perf_counter() - began


def figures(answers: Sequence[Answer], failures: Sequence[str], seconds: float) -> dict[str, Any]:
    """Return the fields of ``Load`` that follow from the requests themselves."""
    tokens = sum(a.tokens for a in answers)
    chunks = sum(len(a.arrivals) for a in answers)
    said = Counter(failures).most_common(_SHOWN_FAILURES)
    return {
        "requests": len(answers) + len(failures),
        "completed": len(answers),
        "failed": len(failures),
        "failures": tuple(f"{count} × {text}" for text, count in said),
        "seconds": round(seconds, 3),
        "prompt_tokens": sum(a.prompt_tokens for a in answers),
        "output_tokens": tokens,
        "tokens_per_second": round(tokens / seconds, 2) if answers else None,
        "ttft_ms": spread([a.ttft for a in answers]),
        "tpot_ms": spread([t for a in answers if (t := a.tpot) is not None]),
        "gap_ms": spread([gap for a in answers for gap in a.gaps]),
        "tokens_per_chunk": round(tokens / chunks, 3) if chunks else None,
    }


def spread(seconds: Sequence[float]) -> Spread | None:
    """Return the spread of times, by rank; None of no time at all."""
    if not seconds:
        return None
    values = np.asarray(seconds) * 1e3
    p50, p95 = np.percentile(values, (50, 95), method="inverted_cdf")
    return Spread(p50=round(float(p50), 3), p95=round(float(p95), 3), max=round(values.max(), 3))
