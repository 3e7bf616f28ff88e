"""The end of a server, asked for or not: in time, and nothing is left of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import requests
from running_server import Server, Starter, command
from server_processes import (
    X,
    begin,
    free_port,
    fronts,
    hosts_of,
    is_gone,
    model_of,
    processes,
    slowdown,
    steps,
    wait_ready,
    wait_replaced,
    wait_until,
)

pytestmark = pytest.mark.slow


def test_s6_after_kill_of_the_supervisor_nothing_lives(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["mlp"]), str(zoo["slow"]), str(zoo["floats"]))
    [stopped] = hosts_of(server, "mlp")
    # Large JSON starts a process of the front's own, two below the supervisor's child.
    values = [1.5] * 300_000
    large = {"name": "x", "datatype": "FP32", "shape": [1, len(values)], "data": values}
    assert server.infer("floats", large).ok
    assert processes(server, "json_worker")
    stopped.suspend()
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(server.infer, "slow", X, steps(10**9))
        wait_until(lambda: model_of(server, "slow")["in_flight"] == 1)
        every = psutil.Process(server.process.pid).children(recursive=True)
        assert len(every) >= 9
        server.process.kill()
        wait_until(lambda: all(map(is_gone, every)), 3)
        with pytest.raises(requests.ConnectionError):
            lost.result()
    # Nor is anything of it in the way of the next one.
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", server.port))


def test_sigterm_with_a_stuck_host_ends_within_the_drain_and_a_few_seconds(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["slow"]), "--drain-seconds", "1")
    every = psutil.Process(server.process.pid).children(recursive=True)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(server.infer, "slow", X, steps(10**9))
        wait_until(lambda: model_of(server, "slow")["in_flight"] == 1)
        hosts_of(server, "slow")[0].suspend()
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert lost.result().status_code == 503
        assert server.process.wait(timeout=20) == 0
        assert time.monotonic() - began < 8 * slowdown()
    assert all(map(is_gone, every))


def test_closed_standard_streams_do_no_harm(zoo: dict[str, Path]) -> None:
    port = free_port()
    line = " ".join(command(str(zoo["mlp"]), "--port", str(port)))
    process = subprocess.Popen(
        ["sh", "-c", f"exec {line} <&-"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    server = Server(process, f"http://127.0.0.1:{port}", {})
    try:
        wait_until(lambda: server.get("/readyz").ok, 90)
        assert server.infer("mlp", X).ok
        assert server.stop() == 0
    finally:
        server.close()


def test_ctrl_c_in_a_terminal_drains_as_sigterm_does(zoo: dict[str, Path]) -> None:
    port = free_port()
    process = begin(str(zoo["slow"]), port=port, start_new_session=True)
    server = Server(process, f"http://127.0.0.1:{port}", {})
    try:
        wait_until(lambda: server.get("/readyz").ok, 90)
        every = psutil.Process(process.pid).children(recursive=True)
        with ThreadPoolExecutor(1) as pool:
            began = time.monotonic()
            assert server.infer("slow", X, steps(300_000)).ok
            count = int(300_000 * 2 / (time.monotonic() - began))
            answer = pool.submit(server.infer, "slow", X, steps(count))
            time.sleep(0.4)
            # As a terminal does it: to every process of the foreground group.
            os.killpg(process.pid, signal.SIGINT)
            assert answer.result().ok
        assert process.wait(timeout=20) == 0
        assert all(map(is_gone, every))
    finally:
        server.close()


def test_sigterm_while_it_loads_ends_at_once_and_leaves_nothing(zoo: dict[str, Path]) -> None:
    for wait in (0.0, 0.3):
        port = free_port()
        process = begin(*(str(zoo[n]) for n in ("mlp", "slow", "echo")), port=port)
        server = Server(process, f"http://127.0.0.1:{port}", {})
        try:
            wait_until(lambda pid=process.pid: processes(pid, "guardian"), 30)
            time.sleep(wait)
            every = psutil.Process(process.pid).children(recursive=True)
            process.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert process.wait(timeout=30) == 0
            assert time.monotonic() - began < 3 * slowdown()
            assert all(map(is_gone, every))
        finally:
            server.close()


def test_s7_an_engine_that_never_loads_is_given_up_and_cleaned_up(
    zoo: dict[str, Path], tmp_path: Path
) -> None:
    config = tmp_path / "modelops.yaml"
    model = {"name": "mlp", "source": str(zoo["mlp"]), "load_seconds": 6}
    config.write_text(json.dumps({"version": 1, "models": [model]}))
    port = free_port()
    process = begin("--config", str(config), port=port)
    server = Server(process, f"http://127.0.0.1:{port}", {})
    try:
        [host] = wait_until(lambda: processes(process.pid, "host"), 30)
        host.suspend()
        wait_until(lambda: server.get("/livez").ok, 30)
        ready = server.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["models"][0]["state"] == "loading"
        refused = server.infer("mlp", X)
        assert refused.status_code == 503
        every = psutil.Process(process.pid).children(recursive=True)
        assert process.wait(timeout=40) == 1
        assert process.stderr is not None
        said = process.stderr.read()
        assert "not ready 6 s after its start" in said
        assert "Traceback" not in said
        wait_until(lambda: all(map(is_gone, every)), 3)
    finally:
        server.close()


# What a day leaves behind.


@dataclass(frozen=True)
class Holdings:
    """What a server's processes hold, by kind."""

    descriptors: dict[str, int]
    megabytes: dict[str, float]

    @classmethod
    def of(cls, server: Server) -> Holdings:
        parts = {"supervisor": psutil.Process(server.process.pid)}
        parts |= {k: processes(server, k)[0] for k in ("host", "json_worker")}
        parts["front"] = fronts(server)[0]
        return cls(
            {k: p.num_fds() for k, p in parts.items()},
            {k: p.memory_info().rss / 2**20 for k, p in parts.items()},
        )


def test_descriptors_and_memory_stay_flat(starter: Starter, zoo: dict[str, Path]) -> None:
    server = starter(str(zoo["floats"]))
    rng = np.random.default_rng(5)

    def work(count: int) -> None:
        with requests.Session() as session:
            for i in range(count):
                _one(session, server, 2**18 if i % 10 == 0 else int(rng.integers(1, 30_000)), i)

    work(100)
    before = Holdings.of(server)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [50] * 20))
    # The connections of the sessions above are closed a moment later.
    wait_until(lambda: Holdings.of(server).descriptors == before.descriptors, 10, every=0.2)
    after = Holdings.of(server)
    # One large request in ten that stayed would be 100 MB by now, and each way.
    grown = {k: after.megabytes[k] - before.megabytes[k] for k in after.megabytes}
    assert max(grown.values()) < 60, grown
    for _ in range(2):
        [host] = processes(server, "host")
        host.kill()
        wait_replaced(server, "floats", host)
    fronts(server)[0].kill()
    wait_ready(server, "floats")
    work(20)
    wait_until(lambda: Holdings.of(server).descriptors == before.descriptors, 10, every=0.2)
    assert Holdings.of(server).megabytes["supervisor"] - before.megabytes["supervisor"] < 20
    assert server.stop() == 0


def _one(session: requests.Session, server: Server, count: int, number: int) -> None:
    """Ask the echo for ``count`` values, as binary tensors, and now and then as JSON."""
    url = f"{server.url}/v2/models/floats/infer"
    x: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1, count]}
    if number % 25 == 0:
        count = 20_000
        body = {"inputs": [{**x, "shape": [1, count], "data": [0.5] * count}]}
        reply = session.post(url, json=body, timeout=60)
        assert reply.ok
        return
    data = np.full(count, number, "<f4").tobytes()
    x["parameters"] = {"binary_data_size": len(data)}
    head = json.dumps({"inputs": [x], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    reply = session.post(url, data=head + data, headers=headers, timeout=60)
    assert reply.ok, reply.text[:200]
    assert reply.content.endswith(data[-4:])
