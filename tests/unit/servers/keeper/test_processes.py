"""What the process table tells of an engine: who belongs to it, who is stopped, who works."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from modelops_servers.keeper import leftovers
from modelops_servers.keeper.processes import Work, family, shared_memory, stopped, workers

PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]])
print(child.pid, flush=True)
child.wait()
"""
BUSY = "while True: pass"
IDLE = "import time; time.sleep(600)"


@pytest.fixture(params=[IDLE])
def pids(request: pytest.FixtureRequest) -> Iterator[list[int]]:
    """A process and its child, which does as the parameter says."""
    command = [sys.executable, "-c", PARENT, request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        yield [parent.pid, child]
        os.kill(child, 9)


def watched(work: Work, pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        work.look(time.monotonic(), pids)
        time.sleep(0.1)
    return work.look(time.monotonic(), pids)


def test_a_family_is_a_process_and_its_descendants(pids: list[int]) -> None:
    assert family(pids[0]) == pids
    assert family(2**22 - 1) == [2**22 - 1]


def test_one_that_somebody_stopped_is_named(pids: list[int]) -> None:
    assert stopped(pids) is None
    psutil.Process(pids[1]).suspend()
    time.sleep(0.1)
    assert f"process {pids[1]} (python" in (stopped(pids) or "")
    psutil.Process(pids[1]).resume()
    time.sleep(0.1)
    assert stopped([*pids, 2**22 - 1]) is None


@pytest.mark.parametrize(("pids", "works"), [(BUSY, True), (IDLE, False)], indirect=["pids"])
def test_work_is_told_from_waiting(pids: list[int], works: bool) -> None:
    time.sleep(1)  # its imports
    work = Work()
    assert not work.look(time.monotonic(), pids)
    assert watched(work, pids[1:], 2) is works


def test_what_worked_and_hangs_now_is_seen_after_some_seconds(
    pids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    from modelops_servers.keeper import processes

    used = {pids[1]: 0.0}
    monkeypatch.setattr(processes, "_processor_seconds", used.get)
    work = Work()
    said = []
    for second in range(20):
        if second < 10:
            used[pids[1]] += 0.2
        said.append(work.look(1000.0 + second, [pids[1], 2**22 - 1]))
    assert all(said[1:11])
    assert not any(said[16:])


def test_workers_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from modelops_servers.keeper import processes

    names = {1: "python", 2: "VLLM::EngineCor", 3: "VLLM::Worker_TP", 4: "VLLM::Worker_TP"}
    monkeypatch.setattr(processes, "_name", names.__getitem__)
    assert workers([1, 2, 3, 4]) == [3, 4]
    assert workers([1, 2]) == [2]
    names[2] = "python"
    assert workers([1, 2]) == [2]


def test_shared_memory_that_a_killed_engine_leaves_is_removed(tmp_path: Path) -> None:
    code = (
        "import time\nfrom multiprocessing.shared_memory import SharedMemory\n"
        "import multiprocessing.resource_tracker as t; t.register = lambda *a: None\n"
        "m = SharedMemory(create=True, size=4096); print(m.name, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        name = one.stdout.readline().strip()
        assert shared_memory([one.pid, 2**22 - 1]) == {name}
        folder = tmp_path / f"0{leftovers.SUFFIX}"
        folder.mkdir()
        leftovers.record(folder, shared_memory([one.pid]) | {"../../etc/passwd", "mine"})
        one.kill()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("multiprocessing.resource_tracker.register", lambda *_: None)
        SharedMemory(name).close()
    leftovers.sweep(tmp_path)
    assert not Path("/dev/shm", name).exists()
    assert not folder.exists()
