"""Interleaved rounds: every contender is measured once a round, in an order shuffled each time."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gateway import runtime_alone, wrk
from gateway.artifacts import Model
from gateway.bodies import Body, Feed
from gateway.contenders import HOSTED, INLINE, Contender, infer_path
from gateway.processes import Running, note
from gateway.runtime_alone import BatchSizes
from gateway.servers.session import open_session

_IDLE_SHARE = 0.02
_CHECKED = 8
_ALONE_SECONDS = 4


@dataclass(frozen=True)
class Scenario:
    """One model, its bodies, and how long each contender is measured at how many connections."""

    model: Model
    feeds: list[Feed]
    bodies: list[Body]
    file: Path
    connections: tuple[int, ...]
    rounds: int
    seconds: int
    threads: int
    tolerance: float
    batches: bool
    """Whether the runtime alone is measured on the gateway's batches."""

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name


@dataclass
class Measured:
    """Every run's numbers, and what was noticed on the way."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def alone(contender: str) -> str:
    """The name under which the runtime is measured on this contender's batches."""
    return f"runtime alone, {contender.removeprefix('modelops ')}'s batches"


def measure(scenario: Scenario, contenders: Sequence[Contender]) -> Measured:
    """Start all, check each one's answers, and measure them by turns."""
    found = Measured()
    running: dict[str, Running] = {}
    try:
        expected = _expected(scenario)
        for contender in contenders:
            note(f"{scenario.name}: starting {contender.name}")
            server = running[contender.name] = contender.start(scenario.model, scenario.threads)
            server.wait(infer_path(scenario.model), scenario.bodies[0])
            _check(server, scenario, expected)
        greedy = _greedy(running, found)
        for name in greedy:
            running[name].pause()
        for number in range(scenario.rounds):
            order = list(running)
            random.Random(number).shuffle(order)
            note(f"{scenario.name}: round {number + 1} of {scenario.rounds}")
            for name in order:
                if name in greedy:
                    running[name].resume()
                _turn(running[name], scenario, number, found)
                if name in greedy:
                    running[name].pause()
    finally:
        for server in running.values():
            server.resume()
            server.stop()
    return found


def _turn(server: Running, scenario: Scenario, number: int, found: Measured) -> None:
    url = server.url + infer_path(scenario.model)
    batching = scenario.batches and server.name in (HOSTED, INLINE)
    for connections in scenario.connections:
        wrk.load(url, scenario.file, connections=connections, seconds=1)
        server.settle()
        before = _batch_sizes(server, scenario) if batching else None
        cpu = server.cpu_seconds()
        run = wrk.load(url, scenario.file, connections=connections, seconds=scenario.seconds)
        used = server.cpu_seconds() - cpu
        server.settle()
        place = {
            "scenario": scenario.name,
            "connections": connections,
            "round": number,
        }
        answered = run["requests"]
        extra: dict[str, Any] = {"cpu_us": used / answered * 1e6 if answered else None}
        run["valid"] = answered > 0 and run["errors"] == 0
        if before is not None:
            sizes = _batch_sizes(server, scenario).since(before)
            extra["mean_batch"] = sizes.items / sizes.calls if sizes.calls else None
            if sizes.calls:
                again = runtime_alone.measure(
                    scenario.model,
                    sizes,
                    threads=scenario.threads,
                    connections=connections,
                    seconds=min(scenario.seconds, _ALONE_SECONDS),
                )
                found.runs.append(
                    {"contender": alone(server.name), **place, **again, "valid": True}
                )
        found.runs.append({"contender": server.name, **place, **run, **extra})


def _batch_sizes(server: Running, scenario: Scenario) -> BatchSizes:
    return BatchSizes.read(server.get("/metrics"), scenario.model.name)


def _expected(scenario: Scenario) -> list[Any]:
    session = open_session(str(scenario.model.onnx), scenario.threads)
    return [session.run(None, feed)[0] for feed in scenario.feeds[:_CHECKED]]


def _check(server: Running, scenario: Scenario, expected: Sequence[Any]) -> None:
    """Ask alone and at once, so that batches form: every answer is the runtime's own."""
    path = infer_path(scenario.model)
    bodies = scenario.bodies[: len(expected)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = [server.post(path, bodies[0]), *pool.map(lambda b: server.post(path, b), bodies)]
    for answer, wanted in zip(answers, [expected[0], *expected], strict=True):
        output = json.loads(answer)["outputs"][0]
        got = np.array(output["data"], np.float32).reshape(output["shape"])
        if got.shape != wanted.shape or not np.allclose(got, wanted, 0, scenario.tolerance):
            raise SystemExit(f"{server.name} answers otherwise than the runtime: not measured")


def _greedy(running: dict[str, Running], found: Measured) -> list[str]:
    """Who uses the processor without any request: it is stopped while others are measured."""
    seconds = 2.0
    before = {name: server.cpu_seconds() for name, server in running.items()}
    time.sleep(seconds)
    shares = {n: (s.cpu_seconds() - before[n]) / seconds for n, s in running.items()}
    greedy = [name for name, share in shares.items() if share > _IDLE_SHARE]
    found.notes += [
        f"{name} uses {shares[name]:.0%} of a core when idle; it was stopped (SIGSTOP) while "
        "others were measured"
        for name in greedy
    ]
    return greedy
