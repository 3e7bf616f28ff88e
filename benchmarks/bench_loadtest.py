"""Load testers beside each other on one mock server, against the moments at which it really wrote.

The mock streams 50 tokens a second to each of 1, 16, 64 and 256 clients at once, on a clock that is
scripted, and stamps every write. `modelops loadtest`, guidellm and `vllm bench serve` read it by
turns. What each says of TTFT and of the gaps between tokens, less what was written, is its error;
the CPU is that of all its processes while it reads. guidellm tells one mean gap a request, in which
errors cancel; vllm bench takes a chat's role chunk for the first token, so the mock sends none.

Then modelops alone: how many of some short runs are called INVALID though they were right, whether
500 arrivals a second are Poisson and as many as asked, and whether the queue before a server of
500 ms behind one connection is reported. The first use installs guidellm into an environment of its
own; vLLM's is `modelops engine install vllm`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gateway import report
from gateway.artifacts import RESULTS
from gateway.environments import python_of, versions
from gateway.processes import note
from loadtesters.load import SCRIPT, Load, errors, paired
from loadtesters.shapes import TOLERANCE_S, one_connection, open_loop
from loadtesters.tools import GUIDELLM, OURS, VLLM, Tool, everyone, vllm_python

from modelops.errors import ModelopsError
from modelops_loadtests.accuracy import spread
from modelops_loadtests.mock import MockServer

LEVELS = (1, 16, 64, 256)
_SECONDS = 6.0
_SHORT = Load(16, 2.0)
_FOLDER = RESULTS / "loadtesters"
_P50_MS, _P99_MS, _MANY_P99_MS = 0.5, 3.0, 5.0
_MOST_INVALID = 1 / 50
_RATE, _RATE_SECONDS, _RATE_SHARE, _KS_P = 500.0, 30.0, 0.01, 0.01
_QUEUE_SHARE = 0.05


@dataclass(frozen=True)
class Turn:
    """What one tool said in one round, beside the truth. Milliseconds; CPU in cores."""

    tool: str
    streams: int
    round: int
    requests: int
    ttft_p50: float
    ttft_p99: float
    itl_p50: float
    itl_p99: float
    cores: float
    mock_late_p99: float
    verdict: str | None
    reasons: list[str]


def turn(tool: Tool, load: Load, number: int, folder: Path) -> Turn:
    """Let one tool read once.

    Raises:
        RuntimeError: it failed, or does not say what was written.
    """
    shutil.rmtree(folder, ignore_errors=True)
    with MockServer(SCRIPT) as mock:
        told, watched = tool.run(mock.url, load, folder)
        stamps = mock.stamps()
    pairs = paired(told.seen, stamps["requests"])
    ttft, itl = (spread(values) for values in errors(pairs))
    begin = min(record["arrived"] for _, record in pairs)
    end = max(record["wrote"][-1] for _, record in pairs)
    figures = [found[p] for found in (ttft, itl) for p in ("p50", "p99")]
    if any(value is None for value in figures):
        raise RuntimeError("nothing that it read began after the first second")
    return Turn(
        tool.name, load.streams, number, len(pairs), *(float(v or 0.0) for v in figures),
        watched.cores(begin, end), stamps["late_ms"]["p99"], told.verdict, told.reasons,
    )  # fmt: skip


def measure(
    tools: Sequence[Tool], levels: Sequence[int], rounds: int
) -> tuple[list[Turn], dict[str, str]]:
    """Return every turn, and why a tool was given up."""
    turns: list[Turn] = []
    failed: dict[str, str] = {}
    for streams in levels:
        for number in range(1, rounds + 1):
            note(f"{streams} streams: round {number} of {rounds}")
            for tool in tools:
                if tool.name in failed:
                    continue
                folder = _FOLDER / tool.name.replace(" ", "-")
                try:
                    turns.append(turn(tool, Load(streams, _SECONDS), number, folder))
                except (RuntimeError, OSError, KeyError, SystemExit, ModelopsError) as error:
                    failed[tool.name] = f"{streams} streams: {error!r}"
    return turns, failed


def show(turns: Sequence[Turn], tools: Sequence[str]) -> list[dict[str, Any]]:
    """Print the table; return the targets of the accuracy beside what was measured."""
    table = report.table_of(
        "Errors against the mock's stamps, ms; medians of the rounds (× modelops)", "contender",
        "streams", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "cores", "verdicts",
    )  # fmt: skip
    for streams in sorted({t.streams for t in turns}):
        first = _medians(turns, OURS, streams)
        for name in tools:
            found = _medians(turns, name, streams)
            if not found:
                continue
            words = [f"{found[key]:.3f}" + _ratio(found, first, key, name) for key in _FIGURES]
            own = [t for t in turns if (t.tool, t.streams) == (name, streams)]
            verdicts = ", ".join(sorted({t.verdict for t in own if t.verdict}))
            table.add_row(name, str(streams), *words, verdicts)
    report.console.print(table)
    return [judge(turns, streams) for streams in sorted({t.streams for t in turns})]


_FIGURES = ("ttft_p50", "ttft_p99", "itl_p50", "itl_p99", "cores")


def _medians(turns: Sequence[Turn], tool: str, streams: int) -> dict[str, float]:
    own = [t for t in turns if (t.tool, t.streams) == (tool, streams)]
    return {k: statistics.median(getattr(t, k) for t in own) for k in _FIGURES} if own else {}


def _ratio(found: dict[str, float], first: dict[str, float], key: str, name: str) -> str:
    if name == OURS or not first.get(key):
        return ""
    return f" (×{found[key] / first[key]:.3g})"


def judge(turns: Sequence[Turn], streams: int) -> dict[str, Any]:
    """Return whether modelops was as accurate with so many streams as it has to be."""
    own = [t for t in turns if (t.tool, t.streams) == (OURS, streams)]
    many = streams > 64
    p50, p99 = (_MANY_P99_MS, _MANY_P99_MS) if many else (_P50_MS, _P99_MS)
    within = [max(t.ttft_p50, t.itl_p50) <= p50 and max(t.ttft_p99, t.itl_p99) <= p99 for t in own]
    invalid = [t.verdict == "INVALID" for t in own]
    good = [(w and not i) or (many and i) for w, i in zip(within, invalid, strict=True)]
    word = "met" if sum(good) * 2 > len(good) else "MISSED"
    either = f"VALID within {p99:g} ms, or INVALID" if many else f"VALID, ≤ {p50:g} / {p99:g} ms"
    return {
        "target": f"{streams} streams: {either}", "measured": f"{sum(good)} of {len(good)} rounds",
        "word": word,
    }  # fmt: skip


def called_invalid(runs: int, tool: Tool) -> dict[str, Any]:
    """Return how many of some short runs are called INVALID though their errors are in bounds."""
    within = wrong = 0
    reasons: list[str] = []
    for number in range(1, runs + 1):
        note(f"short runs: {number} of {runs}")
        found = turn(tool, _SHORT, number, _FOLDER / "short")
        right = max(found.ttft_p50, found.itl_p50) <= _P50_MS
        if right and max(found.ttft_p99, found.itl_p99) <= _P99_MS:
            within += 1
            if found.verdict == "INVALID":
                wrong += 1
                reasons += found.reasons
    return {
        "target": f"of {runs} short runs fewer than 1 in 50 of those in bounds are INVALID",
        "measured": f"{wrong} of {within} in bounds",
        "word": "met" if within and wrong <= within * _MOST_INVALID else "MISSED",
        "reasons": reasons,
    }


def arrivals(seconds: float) -> list[dict[str, Any]]:
    """Judge an open loop's rate and gaps, as the mock saw them."""
    note(f"open loop: {_RATE:g} arrivals/s for {seconds:g} s")
    found = open_loop(_RATE, seconds, _FOLDER / "open")
    off = abs(found["delivered"]["delivered"] / found["delivered"]["scheduled"] - 1)
    return [
        {
            "target": f"{_RATE:g} arrivals/s: the schedule's rate within 1 %",
            "measured": f"{off:.3%} off; the mock saw {found['seen']:.1f}/s; {found['verdict']}",
            "word": "met" if off <= _RATE_SHARE and found["verdict"] != "INVALID" else "MISSED",
            **found,
        },
        {
            "target": f"the schedule's gaps pass a Kolmogorov–Smirnov test (p ≥ {_KS_P:g})",
            "measured": "D = {:.4f}, p = {:.3g}".format(*found["planned"]),
            "word": "met" if found["planned"][1] >= _KS_P else "MISSED",
        },
        {
            "target": f"and so they do as they arrive, known to {TOLERANCE_S * 1000:g} ms",
            "measured": f"D = {found['ks_distance']:.4f}, p = {found['ks_p']:.3g}; "
            "to the microsecond D = {:.4f}, p = {:.3g}".format(*found["exact"]),
            "word": "met" if found["ks_p"] >= _KS_P else "MISSED",
        },
    ]


def queueing() -> dict[str, Any]:
    """Judge what is reported of a queue behind one connection."""
    note("a 500 ms server behind one connection, 10 requests/s")
    found = one_connection(_FOLDER / "queue")
    off = abs(found["ttft_ms"] / found["waited_ms"] - 1)
    return {
        "target": "the queue before one connection is reported (within 5 %)",
        "measured": f"{found['ttft_ms']:.0f} ms of {found['waited_ms']:.0f}; from sent "
        f"{found['ttft_from_sent_ms']:.0f}, in a closed loop {found['closed_loop_ms']:.0f}",
        "word": "met" if off <= _QUEUE_SHARE else "MISSED",
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=50, help="short runs (50)")
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave a tool out"
    )
    parser.add_argument(
        "--quick", action="store_true", help="1 round, 3 short runs, 5 s of arrivals"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end what was started
    rounds, runs, seconds = (
        (1, 3, 5.0) if options.quick else (options.rounds, options.runs, _RATE_SECONDS)
    )
    where = report.machine()
    tools = [
        tool
        for tool in everyone()
        if not any(part.lower() in tool.name.lower() for part in options.without)
    ]
    turns, missing = measure(tools, LEVELS, rounds)
    alone = [queueing(), *arrivals(seconds), called_invalid(runs, tools[0])]
    report.console.print(where)
    shown = _versions([tool.name for tool in tools if tool.name not in missing])
    for name, packages in shown.items():
        report.console.print(f"  {name}: " + ", ".join(f"{p} {v}" for p, v in packages.items()))
    outcomes = [*show(turns, [tool.name for tool in tools]), *alone]
    table = report.table_of("targets", "target", "measured", "")
    for outcome in outcomes:
        table.add_row(outcome["target"], outcome["measured"], outcome["word"])
    report.console.print(table)
    for tool in tools:
        report.console.print(f"  {tool.name}: {tool.note}")
    for name, why in missing.items():
        report.console.print(f"  NOT MEASURED: {name}: {why}", markup=False)
    content = {"versions": shown, "machine": where, "missing": missing, "outcomes": outcomes}
    path = report.save("loadtest", {**content, "turns": [asdict(t) for t in turns]})
    print(f"written to {path}", file=sys.stderr)


def _versions(names: Sequence[str]) -> dict[str, dict[str, str]]:
    found = {OURS: versions(sys.executable, "modelops", "gevent", "locust")}
    if GUIDELLM in names:
        found[GUIDELLM] = versions(python_of("guidellm"), "guidellm", "httpx")
    if VLLM in names:
        found[VLLM] = versions(vllm_python(), "vllm", "aiohttp")
    return found


if __name__ == "__main__":
    main()
