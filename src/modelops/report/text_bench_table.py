"""A language model's benchmark at the terminal: memory, speed and drift, type by type."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelops.report.terminal import grid, plain
from modelops.report.text_bench import headline, preemption_lines, share, tone
from modelops.report.units import UNKNOWN, nbytes, number, seconds, thousands
from modelops.text_benchmark import Drift, Load, Spread, TextBenchResult

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
        parts += [Text(), _loads(result), plain("times are p50 / p95", "dim")]
        parts += map(plain, preemption_lines(result))
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
        ("at once", "right"),
        ("TTFT ms", "right"),
        ("ms/token", "right"),
        ("tokens/s", "right"),
        ("preempted", "right"),
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
        _milliseconds(load.ttft_ms),
        _milliseconds(load.tpot_ms),
        number(load.tokens_per_second),
        thousands(load.preemptions),
        f"{load.completed}/{load.requests}",
    )


def _milliseconds(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    values = (f"{v:,.0f}" if v >= 100 else f"{v:.1f}" for v in (spread.p50, spread.p95))
    return " / ".join(values)


def _drifts(result: TextBenchResult) -> Table:
    first = result.measured[0].kv_cache_dtype
    table = grid(
        (f"beside {first}", "left"),
        ("same tokens", "right"),
        ("same answers", "right"),
        ("same top", "right"),
        ("log-prob. mean / max", "right"),
    )
    for row in result.measured:
        for name, found in ((row.kv_cache_dtype, row.drift), (f"{first} again", row.repeat)):
            if found is not None:
                table.add_row(plain(name), *_drift(found))
    return table


def _drift(found: Drift) -> tuple[str, ...]:
    whole = sum(at is None for at in found.diverged_at)
    return (
        share(found.same_share),
        f"{whole}/{found.prompts}",
        share(found.same_top),
        f"{number(found.forced.mean)} / {number(found.forced.max)} nats",
    )
