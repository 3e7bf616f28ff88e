"""Nobody waits for who does not read: lines are dropped, counted, and never cut."""

from __future__ import annotations

import fcntl
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from modelops_servers.unblocked import Unblocked

LINE = "x" * 99 + "\n"


class Pipe:
    """A pipe whose reader reads when the test says so."""

    def __init__(self) -> None:
        self.reading, writing = os.pipe()
        self.stream: TextIO = os.fdopen(writing, "w")

    def read_all(self) -> list[str]:
        """Read in the background until the last writer is gone; return the lines."""
        with os.fdopen(os.dup(self.reading), "rb") as file:
            return file.read().decode().splitlines(keepends=True)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.reading)
    if not made.stream.closed:
        made.stream.close()


def drain(pipe: Pipe, relay: Unblocked) -> list[str]:
    """Let the reader read from now on, finish, and return what it got."""
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(pipe.read_all()))
    reader.start()
    relay.finish(10)
    pipe.stream.close()
    reader.join(10)
    return lines


def test_what_is_read_arrives_in_order(pipe: Pipe) -> None:
    relay = Unblocked(pipe.stream)
    for number in range(200):
        print("line", number, file=relay)
    assert drain(pipe, relay) == [f"line {number}\n" for number in range(200)]


def test_who_does_not_read_holds_nobody_up_and_is_told_what_it_missed(pipe: Pipe) -> None:
    relay = Unblocked(pipe.stream, 50_000)
    began = time.monotonic()
    for _ in range(5_000):
        relay.write(LINE)
        relay.flush()
    assert time.monotonic() - began < 5
    lines = drain(pipe, relay)
    notices = [line for line in lines if line != LINE]
    assert notices
    dropped = sum(int(json.loads(line)["event"].split()[0]) for line in notices)
    whole = len(lines) - len(notices)
    assert dropped + whole == 5_000
    assert 500 <= whole <= 2_000, "what the pipe holds, and what is held before it"


def test_it_goes_on_after_the_reader_comes_back(pipe: Pipe) -> None:
    relay = Unblocked(pipe.stream, 50_000)
    for _ in range(3_000):
        relay.write(LINE)
    end = time.monotonic() + 10
    while relay._held or relay._dropped:
        assert time.monotonic() < end
        if select.select([pipe.reading], [], [], 0.01)[0]:
            os.read(pipe.reading, 10_000)
    relay.write("back\n")
    lines = drain(pipe, relay)
    assert lines[-1] == "back\n"


def test_a_line_in_pieces_is_one_line(pipe: Pipe) -> None:
    relay = Unblocked(pipe.stream, 2_000)
    relay.write("a ")
    print("b", "c", file=relay)
    relay.write("no end")
    relay.flush()
    assert drain(pipe, relay) == ["a b c\n", "no end"]


def test_a_pipe_that_somebody_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    fd = pipe.stream.fileno()
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
    relay = Unblocked(pipe.stream)
    for _ in range(3_000):
        relay.write(LINE)
    assert drain(pipe, relay) == [LINE] * 3_000


def test_a_reader_that_is_gone_is_no_error(pipe: Pipe) -> None:
    other, writing = os.pipe()
    os.close(other)
    with os.fdopen(writing, "w") as stream:
        relay = Unblocked(stream)
        for _ in range(100):
            relay.write(LINE)
            time.sleep(0.001)
        relay.finish()
        assert not relay._thread.is_alive()


def test_finish_waits_for_nobody_for_long(pipe: Pipe) -> None:
    relay = Unblocked(pipe.stream)
    for _ in range(3_000):
        relay.write(LINE)
    began = time.monotonic()
    relay.finish(0.2)
    assert time.monotonic() - began < 2
    drain(pipe, relay)


def test_a_process_whose_stderr_nobody_reads_ends() -> None:
    code = (
        "import logging, sys\n"
        "from modelops_servers.unblocked import unblocked_stderr\n"
        "with unblocked_stderr():\n"
        "    logging.basicConfig()\n"
        "    for _ in range(5000): logging.warning('x' * 99)\n"
        "print('done')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdout, process.stderr:
        try:
            assert process.stdout.readline() == b"done\n"
            assert process.wait(timeout=20) == 0
        finally:
            process.kill()
            process.wait()
