"""The report of a language model's benchmark: one page, with its pictures, and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from modelops.report.page import render
from modelops.report.units import UNKNOWN, nbytes, number, seconds, thousands
from modelops.text_benchmark import Difference, Load, Spread, TextBenchResult, TextBenchRow


@dataclass(frozen=True)
class Bar:
    """One type's value: its share, 0 to 1, of the largest beside it, and its text.

    ``colour`` is the type's in every picture.
    """

    name: str
    colour: int
    share: float
    text: str


@dataclass(frozen=True)
class Plot:
    """One figure of every type that was measured; ``better`` says which end is."""

    title: str
    better: Literal["more", "less"]
    bars: tuple[Bar, ...]


def to_html(result: TextBenchResult) -> str:
    """Return ``result`` as one HTML page that fetches nothing and runs nothing."""
    return render(
        "text_bench.html.j2",
        result=result,
        tone=tone(result),
        headline=headline(result),
        details=tuple(preemption_lines(result)),
        plots=plots(result),
        notes=notes(result),
        ms=ms,
        difference=difference,
        share=share,
        environment=environment(result),
    )


def tone(result: TextBenchResult) -> Literal["good", "warn", "bad"]:
    """Return bad where an engine failed, warn where a request did."""
    if result.exit_code:
        return "bad"
    return "warn" if any(load.failed for _, load in _loads(result)) else "good"


def headline(result: TextBenchResult) -> str:
    """Return what came of it, in one line."""
    said = []
    for state in ("measured", "refused", "failed"):
        names = [row.kv_cache_dtype for row in result.rows if row.state == state]
        if names:
            said.append(f"{', '.join(names)} {state}")
    return "KV cache: " + "; ".join(said)


def preemption_lines(result: TextBenchResult) -> list[str]:
    """Say of each type whether the small cache made the engine preempt, and whether it had to."""
    lines = []
    for row in result.measured:
        load, cache = row.tight, row.cache
        if load is None or cache is None:
            continue
        room = f"of {load.concurrency} requests, those that begin grow to "
        room += f"{thousands(load.grown_tokens)} tokens, and the cache holds "
        room += thousands(cache.tokens)
        if load.preemptions is None:
            what = "the engine does not say whether it preempted"
        elif load.must_preempt and not load.preemptions:
            what = "yet it did not preempt: they did not come to hold that at once"
        else:
            times = "once" if load.preemptions == 1 else f"{load.preemptions} times"
            what = f"it preempted {times}" if load.preemptions else "it did not preempt"
        lines.append(f"{row.kv_cache_dtype}: {room}; {what}.")
    for name, load in _loads(result):
        if load.failed:
            lines.append(
                f"{name}, {load.concurrency} at a time: {load.failed} of {load.requests} requests "
                f"failed and count for nothing: {'; '.join(load.failures)}."
            )
    return lines


def notes(result: TextBenchResult) -> list[str]:
    """Return what was decided for the run, and what its figures do not say."""
    found = list(result.notes)
    found.append(
        f"prompts of {', '.join(map(str, result.prompt_tokens))} tokens in turn, cut from fixed "
        f"prose; answers of exactly {result.output_tokens}; the same for every type"
    )
    found.append(
        f"{result.requests} requests at each concurrency, after a warm-up that is not counted: a "
        "p95 of so few is about the slowest"
    )
    return found


def plots(result: TextBenchResult) -> list[Plot]:
    """Return the pictures: what was measured, type beside type."""
    crowd, few = f"{result.crowd} at a time", f"{result.concurrency} at a time"
    wanted: list[tuple[str, Literal["more", "less"], str, Callable[[float], str]]] = [
        ("Tokens in a GiB of KV cache", "more", "cache.tokens_per_gib", thousands),
        (f"Preemptions, {crowd}", "less", "tight.preemptions", thousands),
        (f"Tokens/s, {few}", "more", "fits.tokens_per_second", number),
        (f"Tokens/s, {crowd}", "more", "tight.tokens_per_second", number),
        (f"TTFT p95, {few}", "less", "fits.ttft_ms.p95", _milliseconds),
        (f"TTFT p95, {crowd}", "less", "tight.ttft_ms.p95", _milliseconds),
        (f"Time per token p50, {few}", "less", "fits.tpot_ms.p50", _milliseconds),
        (f"Time per token p50, {crowd}", "less", "tight.tpot_ms.p50", _milliseconds),
        ("Greedy tokens as the first type's", "more", "drift.same_share", share),
        ("Log-probabilities, mean difference", "less", "drift.forced.mean", _nats),
    ]
    return [
        Plot(title, better, bars)
        for title, better, path, text in wanted
        if (bars := _bars(result.measured, path, text))
    ]


def environment(result: TextBenchResult) -> list[tuple[str, str]]:
    """Return where and with what it was measured."""
    return [
        ("model", result.model),
        *([("digest", result.digest)] if result.digest else []),
        ("engine", f"{result.engine} ({result.build}), on {result.platform}"),
        *result.versions.items(),
        *result.machine.items(),
        ("KV cache", nbytes(result.kv_cache_bytes)),
        ("longest request", f"{result.max_model_len} tokens"),
        *((name, str(value)) for name, value in result.engine_options.items() if value),
        ("started", result.started_at),
        ("took", seconds(result.seconds)),
    ]


def ms(spread: Spread | None, which: Literal["p50", "p95", "max"]) -> str:
    """Return one figure of a spread as text."""
    return UNKNOWN if spread is None else f"{getattr(spread, which):,.1f}"


def difference(found: Difference | None, which: Literal["mean", "max"]) -> str:
    """Return one figure of a difference as text; a zero is exact."""
    return UNKNOWN if found is None else number(getattr(found, which))


def share(value: float | None) -> str:
    """Return a share as text; 100 % is all of it, never almost."""
    if value is None:
        return UNKNOWN
    percent = 100 * value
    return f"{percent:.1f} %" if percent == 100 or percent < 99.95 else "99.9 %"


def _bars(
    rows: tuple[TextBenchRow, ...], path: str, text: Callable[[float], str]
) -> tuple[Bar, ...]:
    values = [_value(row, path) for row in rows]
    # A share is one of all there is, also where no other stands beside it.
    largest = 1.0 if text is share else max((v for v in values if v is not None), default=0) or 1.0
    return tuple(
        Bar(row.kv_cache_dtype, place, value / largest, text(value))
        for place, (row, value) in enumerate(zip(rows, values, strict=True))
        if value is not None
    )


def _value(row: TextBenchRow, path: str) -> float | None:
    """Return what ``path`` leads to; None where a part of it is not there."""
    value: Any = row
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return None if value is None else float(value)


def _loads(result: TextBenchResult) -> list[tuple[str, Load]]:
    return [
        (row.kv_cache_dtype, load)
        for row in result.measured
        for load in (row.fits, row.tight)
        if load is not None
    ]


def _milliseconds(value: float) -> str:
    return f"{value:,.1f} ms"


def _nats(value: float) -> str:
    return f"{number(value)} nats"
