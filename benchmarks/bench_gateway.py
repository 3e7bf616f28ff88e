"""The gateway beside its peers: one client, one ONNX file, one run; ratios, never absolutes.

A tiny MLP (JSON, 1 and 16 connections) and all-MiniLM-L6-v2 (8 to 128 tokens, 16 and 64
connections). Every contender runs the model with the same ONNX Runtime, threads and options and is
checked against the runtime's own answer first. All are measured by turns, in shuffled rounds. The
first use installs LitServe and MLServer into environments of their own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from gateway import artifacts, bodies, report, rounds, targets, wrk
from gateway.contenders import Contender, all_for
from gateway.environments import python_of, versions
from gateway.runtime_alone import MIXED
from gateway.servers.session import open_session


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenario", choices=["mlp", "minilm"], action="append")
    some: Any = {"action": "append", "default": [], "metavar": "NAME"}
    parser.add_argument("--without", help="leave out those whose name holds this", **some)
    parser.add_argument("--only", help="measure only those whose name holds this", **some)
    parser.add_argument("--rounds", type=int, help="rounds [mlp 5, minilm 3]")
    parser.add_argument("--seconds", type=int, help="seconds a run [mlp 2, minilm 6]")
    parser.add_argument("--threads", type=int, default=2, help="threads of one inference [2]")
    parser.add_argument("--quick", action="store_true", help="1 round of 1 s: does it all run?")
    options = parser.parse_args()
    wrk_version, where = wrk.require(), report.machine()
    shown: dict[str, dict[str, str]] = {}
    measured: list[tuple[rounds.Scenario, list[Contender], rounds.Measured]] = []
    for name in options.scenario or ["mlp", "minilm"]:
        scenario = _scenario(name, options)
        contenders = [c for c in all_for(name) if _wanted(c.name, options)]
        shown |= _versions(contenders)
        measured.append((scenario, contenders, rounds.measure(scenario, contenders)))
    report.show_versions(shown, wrk_version, where)
    runs: list[dict[str, Any]] = []
    remarks: list[str] = []
    for scenario, contenders, found in measured:
        names = [name for c in contenders for name in (c.name, rounds.alone(c.name))]
        for connections in scenario.connections:
            report.show_runs(
                f"\n{_TITLES[scenario.name]}, {options.threads} threads; "
                f"connections: {connections}; medians of {scenario.rounds} rounds",
                [r for r in found.runs if r["connections"] == connections],
                names,
            )
        remarks += [f"{scenario.name}, {c.name}: {c.note}" for c in contenders]
        runs += found.runs
        remarks += found.notes
    outcomes = targets.outcomes(runs)
    report.show_outcomes(outcomes)
    for remark in dict.fromkeys(remarks):
        report.console.print(f"  {remark}")
    content = {"versions": shown, "machine": where, "wrk": wrk_version, "runs": runs}
    path = report.save("gateway", {**content, "outcomes": outcomes, "notes": remarks})
    print(f"written to {path}", file=sys.stderr)


_TITLES = {
    "mlp": "tiny MLP, JSON",
    "minilm": f"all-MiniLM-L6-v2, JSON, {MIXED[1]}–{MIXED[2]} tokens",
}


def _scenario(name: str, options: argparse.Namespace) -> rounds.Scenario:
    if name == "mlp":
        model = artifacts.from_recipe("mlp")
        feeds = [bodies.rows(1, 16)]
        count, seconds, connections = 5, 2, (1, 16)
    else:
        model = artifacts.minilm()
        inputs = [i.name for i in open_session(str(model.onnx), 1).get_inputs()]
        feeds = bodies.sentences(inputs, *MIXED)
        count, seconds, connections = 3, 6, (16, 64)
    if options.quick:
        count, seconds = 1, 1
    all_bodies = [bodies.json_body(feed) for feed in feeds]
    place = artifacts.RESULTS / "bodies"
    place.mkdir(parents=True, exist_ok=True)
    return rounds.Scenario(
        model=model,
        feeds=feeds,
        bodies=all_bodies,
        file=bodies.write(all_bodies, place / name),
        connections=connections,
        rounds=options.rounds or count,
        seconds=options.seconds or seconds,
        threads=options.threads,
        tolerance=1e-5 if name == "mlp" else 1e-4,
        batches=name == "minilm",
    )


def _wanted(name: str, options: argparse.Namespace) -> bool:
    known = name.lower()
    if any(part.lower() in known for part in options.without):
        return False
    return not options.only or any(part.lower() in known for part in options.only)


def _versions(contenders: list[Contender]) -> dict[str, dict[str, str]]:
    found = {"modelops and the hand-written": versions(sys.executable, "modelops")}
    for peer in dict.fromkeys(c.environment for c in contenders if c.environment):
        python: Path = python_of(peer)
        found[peer] = versions(python, peer)
    return found


if __name__ == "__main__":
    main()
