"""Large bodies: binary tensors there and back, and JSON beside a small probe."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gateway.artifacts import RESULTS, Model
from gateway.bodies import Body, binary_body, json_body, rows
from gateway.connection import Connection, probe
from gateway.contenders import Contender, infer_path
from gateway.post_large import posting
from gateway.processes import Running, note

PROBES_PER_SECOND = 200
JSON_MIB = 16
_DIGITS = 8
_TINY = 64


def by_turns(
    model: Model,
    contenders: Sequence[Contender],
    count: int,
    threads: int,
    measure: Callable[[Running, int], list[dict[str, Any]]],
) -> list[dict[str, Any]]:
    """Start all for ``model`` and measure each once in each of ``count`` shuffled rounds."""
    running: list[Running] = []
    found = []
    try:
        for contender in contenders:
            running.append(contender.start(model, threads))
            running[-1].wait(infer_path(model), json_body(rows(1, _TINY)))
        for number in range(count):
            note(f"{model.name}: round {number + 1} of {count}")
            order = running.copy()
            random.Random(number).shuffle(order)
            for server in order:
                server.settle()
                found += measure(server, number)
    finally:
        for server in running:
            server.stop()
    return found


def transfer(
    server: Running, model: Model, size: int, connections: int, seconds: float
) -> dict[str, Any]:
    """Send ``size`` bytes of float32 and take them back, closed loop, on each connection."""
    feed = rows(1, size // 4)
    body = binary_body(feed)
    path = infer_path(model)
    latencies: list[float] = []
    failures: list[int] = []
    end = time.perf_counter() + seconds

    def work() -> None:
        with Connection(server.url) as connection:
            head = connection.head(path, body)
            while (began := time.perf_counter()) < end:
                connection.send(head, body.data)
                status, answer = connection.receive()
                latencies.append(time.perf_counter() - began)
                if status != 200 or len(answer) < size:
                    failures.append(status)

    _check(server, path, body, feed["x"].tobytes())
    cpu = server.cpu_seconds()
    began = time.perf_counter()
    workers = [threading.Thread(target=work) for _ in range(connections)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    took = time.perf_counter() - began
    return {
        "contender": server.name,
        "bytes": size,
        "connections": connections,
        "mb_per_second": 2 * size * len(latencies) / took / 1e6,
        "p50_ms": statistics.median(latencies) * 1e3,
        "cpu_ms": (server.cpu_seconds() - cpu) / len(latencies) * 1e3,
        "valid": not failures,
    }


def copy_ms(size: int) -> float:
    """How long the machine takes to copy ``size`` bytes that are in no cache line yet."""
    source = np.ones(size, np.uint8)
    taken = []
    for _ in range(9):
        target = np.empty(size, np.uint8)
        began = time.perf_counter()
        np.copyto(target, source)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e3


def large_json() -> Path:
    """Write one request of almost 16 MiB, all of it JSON; return the file."""
    place = RESULTS / "bodies"
    place.mkdir(parents=True, exist_ok=True)
    file = place / "large.json"
    room = JSON_MIB * 2**20 - 256
    values = np.random.default_rng(7).integers(10 ** (_DIGITS - 1), 10**_DIGITS, room // 11)
    data = ",".join(f"0.{value}" for value in values.tolist())
    file.write_text(
        f'{{"inputs":[{{"name":"x","shape":[1,{len(values)}],"datatype":"FP32","data":[{data}]}}]}}'
    )
    return file


def delay(server: Running, model: Model, file: Path, seconds: float) -> dict[str, Any]:
    """What a small request waits with and without a large JSON body in flight."""
    path = infer_path(model)
    small = json_body(rows(1, _TINY))
    quiet = probe(server.url, path, small, rate=PROBES_PER_SECOND, seconds=seconds)
    with posting(server.url, path, file) as told:
        busy = probe(server.url, path, small, rate=PROBES_PER_SECOND, seconds=seconds)
    middle = statistics.median(quiet)
    return {
        "contender": server.name,
        "quiet": _spread(quiet),
        "busy": _spread(busy),
        "alone_ms": (max(quiet) - middle) * 1e3,
        "added_ms": (max(busy) - middle) * 1e3,
        "added_p99_ms": (float(np.quantile(busy, 0.99)) - middle) * 1e3,
        "large": told["answered"],
        "large_ms": told["ms"],
        "valid": told["answered"] > 0 and told["failed"] == 0,
    }


def _spread(latencies: Sequence[float]) -> dict[str, float]:
    found = np.array(latencies) * 1e3
    return {
        "p50_ms": float(np.quantile(found, 0.5)),
        "p99_ms": float(np.quantile(found, 0.99)),
        "max_ms": float(found.max()),
    }


def _check(server: Running, path: str, body: Body, expected: bytes) -> None:
    with Connection(server.url) as connection:
        status, answer = connection.ask(path, body)
        if status != 200 or bytes(answer[-len(expected) :]) != expected:
            raise SystemExit(f"{server.name} does not give the tensor back: not measured")
