"""Large tensors: bytes a second there and back, and what a large JSON body does to its neighbours.

An Identity model gives binary tensors of 1 and 10 MB back, beside a bare ASGI endpoint that does
the same. Then JSON of 16 MiB is posted once a second to a model that sums it, while a small
request is sent 200 times a second: how much later is its answer? The bare endpoint parses on its
event loop and must show a large delay, or the run could not have seen one.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from typing import Any

from gateway import artifacts, large, report
from gateway.contenders import BARE_EXECUTOR, BARE_LOOP, HOSTED, INLINE, all_for
from gateway.environments import versions

_SIZES = (10**6, 10**7)
_CONNECTIONS = (1, 4)
_ALLOWED_MS = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1, help="seconds a transfer run [1]")
    parser.add_argument("--probe-seconds", type=float, default=5, help="seconds a probe run [5]")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    where = report.machine()
    known = {c.name: c for c in all_for("mlp")}
    shown = versions(sys.executable, "modelops")
    report.console.print(where)
    report.console.print(", ".join(f"{name} {version}" for name, version in shown.items()))
    transfers = _transfers([known[n] for n in (HOSTED, INLINE, BARE_LOOP, BARE_EXECUTOR)], options)
    delays = _delays([known[n] for n in (HOSTED, INLINE, BARE_LOOP)], options)
    path = report.save(
        "tensors", {"machine": where, "versions": shown, "transfers": transfers, "delays": delays}
    )
    print(f"written to {path}", file=sys.stderr)


def _transfers(contenders: list[Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    model = artifacts.from_recipe("identity")
    runs = large.by_turns(
        model,
        contenders,
        options.rounds,
        options.threads,
        lambda server, number: [
            {
                "round": number,
                **large.transfer(server, model, size, connections, options.seconds),
            }
            for size in _SIZES
            for connections in _CONNECTIONS
        ],
    )
    table = report.table_of(
        f"\nbinary tensors there and back, medians of {options.rounds} rounds",
        "contender", "MB", "connections", "MB/s in + out", "× bare, loop", "p50 ms", "in copies",
        "CPU ms/request",
    )  # fmt: skip
    copies = {size: large.copy_ms(size) for size in _SIZES}
    for size in _SIZES:
        for connections in _CONNECTIONS:
            here = [r for r in runs if (r["bytes"], r["connections"]) == (size, connections)]
            base = _rates(here, BARE_LOOP)
            for contender in contenders:
                own = [r for r in here if r["contender"] == contender.name]
                rates = _rates(here, contender.name)
                p50 = statistics.median(r["p50_ms"] for r in own)
                table.add_row(
                    contender.name,
                    f"{size / 1e6:g}",
                    str(connections),
                    f"{statistics.median(rates.values()):,.0f}" if rates else "INVALID",
                    _ratio(rates, base),
                    f"{p50:.2f}",
                    f"{p50 / copies[size]:.1f}" if connections == 1 else "",
                    f"{statistics.median(r['cpu_ms'] for r in own):.2f}",
                )
    report.console.print(table)
    for size, took in copies.items():
        report.console.print(f"  one copy of {size / 1e6:g} MB into new memory: {took:.2f} ms")
    return runs


def _rates(runs: list[dict[str, Any]], name: str) -> dict[int, float]:
    return {r["round"]: r["mb_per_second"] for r in runs if r["contender"] == name and r["valid"]}


def _ratio(ours: dict[int, float], theirs: dict[int, float]) -> str:
    both = ours.keys() & theirs.keys()
    return f"{statistics.median(ours[n] / theirs[n] for n in both):.2f}" if both else ""


def _delays(contenders: list[Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    model, file = artifacts.from_recipe("total"), large.large_json()
    runs = large.by_turns(
        model,
        contenders,
        options.rounds,
        options.threads,
        lambda server, number: [
            {"round": number, **large.delay(server, model, file, options.probe_seconds)}
        ],
    )
    table = report.table_of(
        f"\na small request beside JSON of {large.JSON_MIB} MiB in flight, medians of "
        f"{options.rounds} rounds, ms",
        "contender", "alone p50", "alone p99", "alone max", "beside p50", "beside p99",
        "beside max", "added at most", "large takes", "target",
    )  # fmt: skip
    control = _median([r for r in runs if r["contender"] == BARE_LOOP], "added_ms")
    for contender in contenders:
        own = [r for r in runs if r["contender"] == contender.name]
        table.add_row(
            contender.name,
            *(
                f"{statistics.median(r[side][key] for r in own):.1f}"
                for side in ("quiet", "busy")
                for key in ("p50_ms", "p99_ms", "max_ms")
            ),
            f"{_median(own, 'added_ms'):.1f}",
            f"{_median(own, 'large_ms'):,.0f}",
            _verdict(own, control, judged=contender.name in (HOSTED, INLINE)),
        )
    report.console.print(table)
    return runs


def _verdict(runs: list[dict[str, Any]], control: float, *, judged: bool) -> str:
    if not judged:
        return f"control: {'shows it' if control > _ALLOWED_MS else 'shows nothing'}"
    if not all(r["valid"] for r in runs):
        return "INVALID: large bodies were refused"
    if control <= _ALLOWED_MS:
        return "cannot judge: the control shows nothing"
    added = _median(runs, "added_ms")
    if added <= _ALLOWED_MS:
        return f"≤ {_ALLOWED_MS:g} ms met"
    if _median(runs, "alone_ms") > _ALLOWED_MS:
        return "cannot judge: as late without"
    return f"≤ {_ALLOWED_MS:g} ms missed"


def _median(runs: list[dict[str, Any]], key: str) -> float:
    return float(statistics.median(r[key] for r in runs))


if __name__ == "__main__":
    main()
