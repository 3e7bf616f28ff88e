"""Plays one stream: each step at its moment, stamped just before and just after its write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from modelops_loadtests.mock.connection import Connection
from modelops_loadtests.mock.plan import END, Step
from modelops_loadtests.mock.stamps import Record

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_CHUNKED = _HEAD + b"transfer-encoding: chunked\r\n\r\n"
_UNTIL_CLOSED = _HEAD + b"connection: close\r\n\r\n"


class Stream:
    """One stream on one connection; ``done`` is called with its outcome when it is over."""

    def __init__(
        self,
        connection: Connection,
        record: Record,
        plan: Iterator[Step],
        done: Callable[[str], None],
        *,
        chunked: bool,
    ) -> None:
        self._connection = connection
        self._record = record
        self._plan = plan
        self._done = done
        self._chunked = chunked
        self._loop = asyncio.get_running_loop()

    def start(self, began: float) -> None:
        """Play it; its times count from ``began``."""
        self._began = began
        self._connection.left = self._left
        self._head = _CHUNKED if self._chunked else _UNTIL_CLOSED
        self._wait()

    def _wait(self, written: Step | None = None) -> None:
        step = next(self._plan)
        late = time.perf_counter() - (self._began + step.at)
        if written is not None and step.at > written.at and late > 0:
            # Later than a whole interval: it goes on from here, as an engine would, rather than
            # write at once all that it owes, which nobody could tell from a client that sleeps.
            self._began += late + step.at - written.at
        self._timer = self._loop.call_at(self._began + step.at, self._write, step)

    def _write(self, step: Step) -> None:
        framed = map(_frame, step.events) if self._chunked else step.events
        data = self._head + b"".join(framed)
        if step.then == END and self._chunked:
            data += b"0\r\n\r\n"
        record = self._record
        if data:
            before = time.perf_counter()
            whole = self._connection.write(data)
            after = time.perf_counter()
            record.queued += not whole
            if self._head:
                record.first_byte, self._head = after, b""
            for number in step.tokens:
                record.due.append(self._began + step.at)
                record.writing.append(before)
                record.wrote.append(after)
                record.tokens.append(number)
        if step.then:
            self._end(step.then)
        else:
            self._wait(step)

    def _end(self, how: str) -> None:
        if how == "stall":
            return  # until the client leaves
        connection = self._connection
        if how == END and self._chunked:
            self._done("ok")
            connection.over()
            return
        if how == "reset":
            connection.reset()
        else:
            connection.close()
        self._done("ok" if how == END else how)

    def _left(self) -> None:
        self._timer.cancel()
        self._done("left")


def _frame(event: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(event), event)
