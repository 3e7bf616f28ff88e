"""Memory and file descriptors over many requests: are they flat, and would a leak be seen?

Requests of 1 to 8 rows, JSON and binary, one in twenty malformed, sixteen clients at a time, some
of which leave in the middle. After each slice the resident memory, that which is its own (anonymous
and shared memory, each page by the share of those who map it) and the file descriptors of every
process of the gateway are read at rest; a straight line through what follows the warm-up says
whether they grow. The same is done to a server that leaks 128 bytes a request and
a descriptor every thousand: where its growth is not seen, nothing is judged.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from gateway import artifacts, bodies, flatness, report, varying, wrk
from gateway.artifacts import RESULTS, Model
from gateway.contenders import HOSTED, INLINE, all_for, infer_path, leaking
from gateway.flatness import Flatness
from gateway.processes import Running, note

_CONNECTIONS = 16
_LEAVERS = 30
_EXPECTED = {"200", "400"}
_REST_SECONDS = 0.3
# What counts as growth: 32 bytes a request are 6 MB, 1 descriptor in 10,000 twenty, over 200,000.
_LIMITS = {"resident": 32.0, "own": 32.0, "descriptors": 1e-4}
_FEWEST_SLICES = 12


@dataclass
class Watched:
    """One server's series: requests so far, and per process (and in all) what was seen then."""

    name: str
    requests: list[int] = field(default_factory=list)
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    left: int = 0
    troubles: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--inline", action="store_true", help="the engine in the front")
    parser.add_argument("--slice-seconds", type=int, default=2, help="load between samples [2]")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    wrk.require()
    where = report.machine()
    model = artifacts.from_recipe("mlp")
    place = RESULTS / "bodies"
    place.mkdir(parents=True, exist_ok=True)
    file = bodies.write(varying.mixture(), place / "varying")
    ours = next(c for c in all_for("mlp") if c.name == (INLINE if options.inline else HOSTED))
    found = []
    for contender, requests in ((leaking(), options.requests // 4), (ours, options.requests)):
        server = contender.start(model, options.threads)
        try:
            server.wait(infer_path(model), bodies.json_body(bodies.rows(1, 16)))
            found.append(_watch(server, model, file, requests, options.slice_seconds))
        finally:
            server.stop()
    control, watched = ({"server": w, "judged": _judged(w)} for w in found)
    report.console.print(where)
    word = _show(control, watched)
    path = report.save("soak", {"machine": where, "word": word, "servers": [control, watched]})
    print(f"written to {path}", file=sys.stderr)


def _watch(server: Running, model: Model, file: Path, requests: int, seconds: int) -> Watched:
    path = infer_path(model)
    watched = Watched(server.name)
    done = 0
    family: list[tuple[int, str]] = []
    while done < requests or len(watched.requests) < _FEWEST_SLICES:
        run = wrk.load(
            server.url + path, file, connections=_CONNECTIONS, seconds=seconds, count=True
        )
        varying.leave(server.url, path, _LEAVERS)
        done += run["requests"]
        watched.left += _LEAVERS
        for status, times in run["statuses"].items():
            watched.statuses[status] = watched.statuses.get(status, 0) + times
        if run["socket_errors"] or run["timeouts"] or not run["requests"]:
            watched.troubles.append(
                f"{run['socket_errors']} socket errors, {run['timeouts']} timeouts after {done:,}"
            )
        time.sleep(_REST_SECONDS)
        seen = _sample(server)
        now = [(pid, label) for pid, label, _ in seen]
        if family and now != family:
            watched.troubles.append(f"processes changed after {done:,} requests")
            break
        family = now
        watched.requests.append(done)
        _record(watched, seen)
        note(f"{server.name}: {done:,} of {requests:,} requests")
        if not run["requests"]:
            break
    if strange := watched.statuses.keys() - _EXPECTED:
        watched.troubles.append(f"statuses {', '.join(sorted(strange))}")
    return watched


def _sample(server: Running) -> list[tuple[int, str, dict[str, float]]]:
    found = []
    for process in sorted(server.tree(), key=lambda p: p.pid):
        try:
            values = {
                "resident": float(process.memory_info().rss),
                "own": _own_memory(process.pid),
                "descriptors": float(process.num_fds()),
            }
            found.append((process.pid, _label(process), values))
        except (psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            continue
    return found


def _own_memory(pid: int) -> float:
    """Proportional memory without files: a library's pages change hands as others come and go."""
    total = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
            total += int(line.split()[1]) * 1024
    return float(total)


def _label(process: psutil.Process) -> str:
    """What the process runs: its module or script, or else its name."""
    words = process.cmdline()
    for word, following in zip(words[1:], [*words[2:], ""], strict=True):
        if word == "-m":
            return str(following)
        if word.endswith(".py"):
            return Path(word).stem
    return str(process.name())


def _record(watched: Watched, seen: list[tuple[int, str, dict[str, float]]]) -> None:
    for key in _LIMITS:
        total = watched.series.setdefault("all processes", {}).setdefault(key, [])
        total.append(sum(values[key] for *_, values in seen))
        for pid, label, values in seen:
            own = watched.series.setdefault(f"{label} [{pid}]", {}).setdefault(key, [])
            own.append(values[key])


def _judged(watched: Watched) -> dict[str, dict[str, Flatness]]:
    return {
        process: {
            key: flatness.judge(watched.requests, values, _LIMITS[key])
            for key, values in series.items()
        }
        for process, series in watched.series.items()
    }


def _show(control: dict[str, Any], watched: dict[str, Any]) -> str:
    for one in (control, watched):
        server: Watched = one["server"]
        table = report.table_of(
            f"\n{server.name}: {server.requests[-1]:,} requests, statuses "
            + ", ".join(f"{s}: {n:,}" for s, n in sorted(server.statuses.items()))
            + f"; {server.left} clients left",
            "what", "first", "last", "slope a request", "±", "",
        )  # fmt: skip
        for process, judged in one["judged"].items():
            for key, flat in judged.items():
                values = server.series[process][key]
                unit, scale = ("MB", 1e6) if key != "descriptors" else ("", 1)
                table.add_row(
                    f"{process}: {key}",
                    f"{values[0] / scale:,.1f} {unit}",
                    f"{values[-1] / scale:,.1f} {unit}",
                    f"{flat.slope:,.1f} B" if unit else f"{flat.slope:.1e}",
                    f"{flat.high - flat.slope:,.1f}" if unit else f"{flat.high - flat.slope:.1e}",
                    flat.word,
                )
        report.console.print(table)
        for trouble in server.troubles:
            report.console.print(f"  {trouble}")
    word = _verdict(control, watched)
    report.console.print(f"\n{watched['server'].name}: {word}")
    return word


def _verdict(control: dict[str, Any], watched: dict[str, Any]) -> str:
    whole = control["judged"]["all processes"]
    blind = [key for key, flat in whole.items() if flat.word != "grows"]
    if blind:
        return f"cannot judge: the leak was not seen in {', '.join(blind)}"
    if watched["server"].troubles:
        return "INVALID: " + "; ".join(watched["server"].troubles)
    words = {flat.word for judged in watched["judged"].values() for flat in judged.values()}
    if "grows" in words:
        return "grows: not met"
    return "flat: met" if words == {"flat"} else "cannot tell: run more requests"


if __name__ == "__main__":
    main()
