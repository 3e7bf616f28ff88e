"""A language model's benchmark at the terminal: memory, speed and drift, type by type."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelops.report.terminal import grid, plain
from modelops.report.text_bench import (
    difference,
    headline,
    ms,
    preemption_lines,
    share,
    tone,
)
from modelops.report.units import UNKNOWN, nbytes, number, seconds, thousands
from modelops.text_benchmark import Drift, Load, TextBenchResult

_COLOUR = {"refused": "yellow", "failed": "red"}
_STYLE = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}


def text_bench_table(result: TextBenchResult) -> RenderableType:
    """Return all of ``result`` that a person looks for."""
    parts: list[RenderableType] = [
        plain(headline(result), _STYLE[tone(result)]),
        plain(
            f"{result.model}, {result.engine} ({result.build}) on {result.platform}; "
            f"{seconds(result.seconds)}",
            "dim",
        ),
        Text(),
        _caches(result),
        *(
            plain(f"{row.kv_cache_dtype} {row.state}: {row.why}", _COLOUR[row.state])
            for row in result.rows
            if row.why is not None
        ),
    ]
    if result.measured:
        parts += [Text(), _loads(result), *map(plain, preemption_lines(result))]
        parts += [Text(), _drifts(result)]
    if "report" in result.files:
        parts += [Text(), plain(f"report: {result.files['report']}")]
    return Group(*parts)


def _caches(result: TextBenchResult) -> Table:
    table = grid(
        ("KV cache", "left"),
        ("tokens/GiB", "right"),
        ("bytes a value", "right"),
        (f"tokens in {nbytes(result.kv_cache_bytes)}", "right"),
        ("", "left"),
    )
    for row in result.rows:
        cache = row.cache
        figures = (
            (UNKNOWN,) * 3
            if cache is None
            else (
                thousands(cache.tokens_per_gib),
                number(cache.bytes_per_value),
                thousands(cache.tokens),
            )
        )
        table.add_row(
            plain(row.kv_cache_dtype), *figures, plain(row.state, _COLOUR.get(row.state, ""))
        )
    return table


def _loads(result: TextBenchResult) -> Table:
    table = grid(
        ("KV cache", "left"),
        ("at a time", "right"),
        ("TTFT p50", "right"),
        ("p95 ms", "right"),
        ("per token p50", "right"),
        ("p95 ms", "right"),
        ("tokens/s", "right"),
        ("preemptions", "right"),
        ("answered", "right"),
    )
    for place in ("fits", "tight"):
        for row in result.measured:
            load: Load | None = getattr(row, place)
            if load is not None:
                table.add_row(plain(row.kv_cache_dtype), *_figures(load))
    return table


def _figures(load: Load) -> tuple[str, ...]:
    return (
        str(load.concurrency),
        ms(load.ttft_ms, "p50"),
        ms(load.ttft_ms, "p95"),
        ms(load.tpot_ms, "p50"),
        ms(load.tpot_ms, "p95"),
        number(load.tokens_per_second),
        thousands(load.preemptions),
        f"{load.completed} of {load.requests}",
    )


def _drifts(result: TextBenchResult) -> Table:
    table = grid(
        ("drift", "left"),
        ("same greedy tokens", "right"),
        ("same answers", "right"),
        ("same likeliest", "right"),
        ("log-prob. mean", "right"),
        ("max (nats)", "right"),
    )
    for row in result.measured:
        for name, found in ((row.kv_cache_dtype, row.drift), ("again", row.repeat)):
            if found is not None:
                table.add_row(plain(f"{name} against {found.against}"), *_drift(found))
    return table


def _drift(found: Drift) -> tuple[str, ...]:
    whole = sum(at is None for at in found.diverged_at)
    return (
        f"{share(found.same_share)} of {found.tokens}",
        f"{whole} of {found.prompts}",
        f"{share(found.same_top)} of {found.forced.positions}",
        difference(found.forced, "mean"),
        difference(found.forced, "max"),
    )
