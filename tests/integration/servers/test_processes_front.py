"""Fronts that die, hang or stand by: real servers, real signals, and who goes on meanwhile."""

from __future__ import annotations

import array
import fcntl
import os
import signal
import termios
import time
from pathlib import Path

import psutil
import pytest
import requests
from running_server import Server, Starter, accepts
from server_processes import (
    X,
    begin,
    free_port,
    fronts,
    gets,
    hosts_of,
    infers,
    is_gone,
    processes,
    report,
    slowdown,
    wait_ready,
    wait_replaced,
    wait_until,
)

pytestmark = pytest.mark.slow

BREAKS = {"name": "shape", "datatype": "INT64", "shape": [2], "data": [1, 4]}
"""A shape that four values cannot have once the model has had its way with it."""


def spare_of(server: Server) -> psutil.Process:
    """Wait for the spare front to have imported all it needs, and return it."""

    def found() -> list[psutil.Process]:
        waiting = [p for p in processes(server, "front") if not accepts(p)]
        # Its interpreter has little to do from then on.
        return [p for p in waiting if p.cpu_percent(0.3) < 20 and p.cpu_times().user > 0.3]

    [spare] = wait_until(found)
    return spare


@pytest.fixture
def server(starter: Starter, zoo: dict[str, Path]) -> Server:
    return starter(str(zoo["mlp"]))


def test_the_spare_becomes_the_front_and_another_takes_its_place(server: Server) -> None:
    hosts = processes(server, "host")
    for _ in range(2):
        spare = spare_of(server)
        assert any(p.pid == spare.ppid() for p in processes(server, "guardian"))
        [front] = fronts(server)
        allowed = slowdown()
        front.kill()
        began = time.monotonic()
        assert server.infer("mlp", X).ok
        assert time.monotonic() - began < allowed
        assert fronts(server) == [spare]
    assert processes(server, "host") == hosts
    assert len(report(server)["fronts"]) == 1
    assert report(server)["fronts"][0]["restarts"] == 2
    every = psutil.Process(server.process.pid).children(recursive=True)
    assert server.stop() == 0
    assert all(map(is_gone, every))


def test_a_spare_that_is_killed_is_replaced_and_nobody_notices(server: Server) -> None:
    spare = spare_of(server)
    with infers(server, "mlp", X) as healthy:
        spare.kill()
        wait_until(lambda: is_gone(spare))
        other = spare_of(server)
    assert healthy.failed == []
    assert other.pid != spare.pid
    assert report(server)["fronts"][0]["restarts"] == 0


def test_where_front_and_spare_are_killed_together_a_front_comes_back(server: Server) -> None:
    for victim in (spare_of(server), *fronts(server)):
        victim.kill()
    wait_until(lambda: server.infer("mlp", X).ok)
    spare_of(server)


def test_after_kill_of_the_supervisor_no_spare_lives(server: Server) -> None:
    spare = spare_of(server)
    spare.suspend()
    guardian = spare.parent()
    assert guardian is not None
    server.process.kill()
    wait_until(lambda: is_gone(spare) and is_gone(guardian), 3)


def test_a_front_that_is_stopped_is_noticed_killed_and_replaced(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["mlp"]), "--fronts", "2")
    wait_until(lambda: len(fronts(server)) == 2)
    stopped, other = fronts(server)
    hosts = processes(server, "host")
    spare_of(server)
    stopped.suspend()

    def told() -> list[str]:
        return [f["state"] for f in report_in_time(server)["fronts"]]

    # The kernel gives some connections to the one that is stopped; whoever waits is told.
    wait_until(lambda: sorted(told()) == ["ready", "stuck"], 15)
    wait_until(lambda: is_gone(stopped), 20)
    wait_until(lambda: len(fronts(server)) == 2)
    for _ in range(20):
        assert server.infer("mlp", X).ok
    assert other in fronts(server)
    assert processes(server, "host") == hosts
    assert sorted(f["restarts"] for f in report(server)["fronts"]) == [0, 1]
    wait_until(lambda: any("was killed: no sign of life" in line for line in server.log))


def report_in_time(server: Server) -> dict[str, list[dict[str, str]]]:
    """Ask until a front that is well takes the connection."""
    for _ in range(200):
        try:
            said: dict[str, list[dict[str, str]]] = requests.get(
                f"{server.url}/readyz", timeout=0.3
            ).json()
        except requests.Timeout:
            continue
        return said
    raise AssertionError("no front answers")


def test_fronts_outlive_a_supervisor_that_was_away_for_long(server: Server) -> None:
    """Suspended as a laptop is: its own clock jumps, and no front is to blame."""
    front, spare = *fronts(server), spare_of(server)
    with gets(server, "/livez", every=0.1) as alive:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(14)
        server.process.send_signal(signal.SIGCONT)
        time.sleep(2)
    assert alive.failed == []
    assert fronts(server) == [front]
    assert spare.is_running()


def test_all_that_was_stopped_together_goes_on_together(server: Server) -> None:
    every = [psutil.Process(server.process.pid)]
    every += every[0].children(recursive=True)
    front = fronts(server)
    for process in every:
        os.kill(process.pid, signal.SIGSTOP)
    time.sleep(14)
    for process in reversed(every):
        os.kill(process.pid, signal.SIGCONT)
    wait_ready(server, "mlp")
    time.sleep(2)
    assert fronts(server) == front
    assert server.infer("mlp", X).ok


def test_a_stderr_that_nobody_reads_holds_up_nobody(zoo: dict[str, Path]) -> None:
    port = free_port()
    # What each front and host logs goes through the supervisor, and so do its own words.
    process = begin(str(zoo["breakable"]), str(zoo["mlp"]), port=port)
    server = Server(process, f"http://127.0.0.1:{port}", {})
    try:
        wait_until(lambda: server.get("/readyz").ok, 90)
        assert process.stderr is not None
        with requests.Session() as session:
            for _ in range(600):
                path = f"/v2/models/breakable/infer?{'x' * 100}"
                reply = session.post(server.url + path, json={"inputs": [X, BREAKS]}, timeout=60)
                assert reply.status_code == 502
        pipe = array.array("i", [0])
        fcntl.ioctl(process.stderr.fileno(), termios.FIONREAD, pipe)
        assert pipe[0] > 60_000, "the pipe is full"
        [host] = hosts_of(server, "mlp")
        host.kill()
        wait_replaced(server, "mlp", host)
        [front] = fronts(server)
        front.kill()
        wait_until(lambda: server.infer("mlp", X).ok)
        assert server.stop() == 0
    finally:
        server.close()


def test_a_front_that_is_killed_while_a_model_loads_is_replaced(zoo: dict[str, Path]) -> None:
    port = free_port()
    process = begin(str(zoo["mlp"]), port=port)
    server = Server(process, f"http://127.0.0.1:{port}", {})
    try:
        [host] = wait_until(lambda: processes(process.pid, "host"), 30)
        host.suspend()
        wait_until(lambda: server.get("/livez").ok, 30)
        [front] = fronts(server)
        front.kill()
        wait_until(lambda: server.get("/livez").ok and fronts(server) != [front], 60)
        host.resume()
        wait_until(lambda: server.get("/readyz").ok, 90)
        assert server.infer("mlp", X).ok
    finally:
        server.close()
