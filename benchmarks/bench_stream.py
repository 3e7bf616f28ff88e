"""The token path beside its peers: tokens for each second of the processor, in one run.

A scripted upstream emits chat chunks as fast as they are read, over 200 streams at once, each token
in an HTTP chunk of its own: once written one by one, once in bursts. The contenders take turns:
`modelops serve` (keys, request ids, parsing, admission, watching, scanning, metrics), an aiohttp →
uvicorn pass-through that does nothing else, vLLM's router (Rust) and LiteLLM's proxy. All processes
of each are counted, and every stream of every round is compared with what was sent. Ratios of one
round, never absolutes. The first use installs the peers into environments of their own.
"""

from __future__ import annotations

import argparse
import math
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gateway import report
from gateway.environments import python_of, versions
from gateway.processes import Running, note
from streams.client import Stream, ask_at_once
from streams.contenders import BARE, GATEWAY, LITELLM, Contender, everyone, scripted
from streams.wire import Script, request, tokens_in, unframed

_TARGETS = ((BARE, 0.7), (LITELLM, 10.0))
# Of what takes far longer than the others less is asked, and the gateway is measured with as much.
_MOST_TOKENS = {LITELLM: 64}


@dataclass(frozen=True)
class Load:
    """What all contenders are to pass on."""

    name: str
    script: Script
    rounds: int
    streams: int


def turn(contender: Contender, running: Running, load: Load, script: Script) -> dict[str, Any]:
    """Stream once through one contender.

    Raises:
        RuntimeError: a stream is not what was sent.
    """
    before, began = running.cpu_seconds(), time.perf_counter()
    streams = ask_at_once(running.port, [request(script.body)] * load.streams)
    seconds, used = time.perf_counter() - began, running.cpu_seconds() - before
    compare(contender, script, streams)
    tokens = script.tokens * load.streams
    return {"per_cpu": tokens / used, "per_second": tokens / seconds, "tokens": script.tokens}


def compare(contender: Contender, script: Script, streams: Sequence[Stream]) -> None:
    """Raise where a stream is not what was sent."""
    expected = script.answer
    for stream in streams:
        body = unframed(stream.answer)
        if contender.exact and body != expected:
            raise RuntimeError("it changed bytes of a stream")
        if tokens_in(body) != list(range(script.tokens)):
            raise RuntimeError("it lost tokens, or changed their order")


def measure(
    load: Load, contenders: Sequence[Contender], running: dict[str, Running]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return an entry for each turn, and why a contender was given up; round 0 warms up."""
    runs: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    there = {c.name for c in contenders}
    for number in range(load.rounds + 1):
        note(f"{load.name}: " + (f"round {number} of {load.rounds}" if number else "warming up"))
        for contender in contenders:
            place = {"contender": contender.name, "load": load.name, "round": number}
            for script in _scripts(load.script, contender.name, there):
                if contender.name in failed:
                    break
                try:
                    found = turn(contender, running[contender.name], load, script)
                except (RuntimeError, ValueError, TimeoutError, OSError) as error:
                    failed[contender.name] = f"{load.name}, round {number}: {error!r}"
                    break
                if number:
                    runs.append({**place, **found})
    return runs, failed


def _scripts(script: Script, name: str, there: set[str]) -> list[Script]:
    most = {n: m // script.burst * script.burst for n, m in _MOST_TOKENS.items() if n in there}
    tokens = {min(script.tokens, most.get(name, script.tokens))}
    if name == GATEWAY:
        tokens |= {min(script.tokens, m) for m in most.values()}
    return [Script(count, script.burst) for count in sorted(tokens)]


def ratios(runs: Sequence[dict[str, Any]], other: str) -> list[float]:
    """The gateway's tokens a processor second over another's, round by round."""
    found = []
    for theirs in (run for run in runs if run["contender"] == other):
        found += [
            ours["per_cpu"] / theirs["per_cpu"]
            for ours in runs
            if ours["contender"] == GATEWAY
            and (ours["round"], ours["tokens"]) == (theirs["round"], theirs["tokens"])
        ]
    return found


def show(load: Load, runs: Sequence[dict[str, Any]], names: Sequence[str]) -> list[dict[str, Any]]:
    """Print one load's table; return the targets beside what was measured."""
    title = (
        f"\n{load.streams} streams, {load.name}; medians of {load.rounds} rounds (lowest–highest)"
    )
    table = report.table_of(
        title, "contender", "tokens a stream", "tokens/CPU s", "tokens/s", "modelops ×", "", ""
    )
    outcomes = []
    for name in names:
        for tokens in sorted({r["tokens"] for r in runs if r["contender"] == name}, reverse=True):
            own = [r for r in runs if (r["contender"], r["tokens"]) == (name, tokens)]
            words = ["", "", ""]
            if name != GATEWAY:
                found = ratios(runs, name)
                middle = statistics.median(found) if found else math.nan
                bound = dict(_TARGETS).get(name)
                if found:
                    words[:2] = [f"{middle:.2f}", f"({min(found):.2f}–{max(found):.2f})"]
                if found and bound is not None:
                    word = "met" if middle >= bound else "MISSED"
                    words[2] = f"target ≥ {bound:g}: {word}"
                    outcomes.append({
                        "load": load.name, "beside": name, "bound": bound, "ratio": middle,
                        "low": min(found), "high": max(found), "word": word,
                    })  # fmt: skip
            per_cpu = [r["per_cpu"] for r in own]
            table.add_row(
                name, f"{tokens:,}",
                f"{statistics.median(per_cpu):,.0f} ({min(per_cpu):,.0f}–{max(per_cpu):,.0f})",
                f"{statistics.median(r['per_second'] for r in own):,.0f}", *words,
            )  # fmt: skip
    report.console.print(table)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--without", action="append", default=[], metavar="NAME", help="leave a contender out"
    )
    parser.add_argument("--quick", action="store_true", help="1 round, few tokens: does it run?")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end what was started
    rounds, less = (1, 4) if options.quick else (options.rounds, 1)
    loads = [
        Load("one token a write", Script(480 // less), rounds, options.streams),
        Load("32 tokens a write", Script(3200 // less // 32 * 32, 32), rounds, options.streams),
    ]
    where = report.machine()
    missing: dict[str, str] = {}
    shown = {"modelops and the bare one": versions(sys.executable, "modelops", "aiohttp")}
    running: dict[str, Running] = {}
    upstream = scripted()
    try:
        for contender in everyone():
            if any(part.lower() in contender.name.lower() for part in options.without):
                missing[contender.name] = "left out by --without"
                continue
            try:
                running[contender.name] = contender.start(upstream.url)
                if contender.environment:
                    python = python_of(contender.environment)
                    shown[contender.name] = versions(python, contender.environment, "aiohttp")
            except SystemExit as error:
                missing[contender.name] = str(error)
        there = [c for c in everyone() if c.name in running]
        runs: list[dict[str, Any]] = []
        for load in loads:
            found, failed = measure(load, there, running)
            runs += found
            missing |= failed
    finally:
        for server in running.values():
            server.stop()
        upstream.stop()
    report.console.print(where)
    for name, packages in shown.items():
        report.console.print(f"  {name}: " + ", ".join(f"{p} {v}" for p, v in packages.items()))
    outcomes = []
    for load in loads:
        own = [run for run in runs if run["load"] == load.name]
        outcomes += show(load, own, [c.name for c in there])
    for contender in there:
        report.console.print(f"  {contender.name}: {contender.note}")
    for name, why in missing.items():
        report.console.print(f"  NOT MEASURED: {name}: {why}", markup=False)
    content = {"versions": shown, "machine": where, "runs": runs, "missing": missing}
    path = report.save("stream", {**content, "outcomes": outcomes})
    print(f"written to {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
