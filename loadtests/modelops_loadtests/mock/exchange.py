"""One scripted request: its number, its place in line, and its reply when that is due."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from modelops_loadtests.mock import whole
from modelops_loadtests.mock.asked import Asked, BadRequestError, count, read_json, texts_of
from modelops_loadtests.mock.connection import Connection, Request
from modelops_loadtests.mock.plan import steps, tokens_of
from modelops_loadtests.mock.script import WHOLE_FAULTS
from modelops_loadtests.mock.stream import Stream
from modelops_loadtests.mock.whole import Whole, error_reply

if TYPE_CHECKING:
    from modelops_loadtests.mock.server import Server


class Exchange:
    """A request and what becomes of it; ``asked`` where it asks for text.

    Raises:
        BadRequestError: the request cannot be meant.
    """

    def __init__(
        self, server: Server, connection: Connection, request: Request, asked: Asked | None
    ) -> None:
        self._server, self._script = server, server.script
        self._connection, self._request, self._asked = connection, request, asked
        if asked is not None:
            prompt = asked.prompt_tokens
        elif request.path.endswith("/embeddings"):
            prompt = sum(map(count, texts_of(read_json(request.body))))
        else:
            prompt = 0
        name = request.headers.get("x-request-id")
        self._record = server.ledger.open(name, request.path, request.arrived)
        self._record.prompt_tokens = prompt
        self._times = self._script.times(self._record.number)
        self._fault = self._script.fault_of(self._record.number)

    def enter(self) -> None:
        """Begin, or wait in line."""
        server, most = self._server, self._script.concurrency
        if most and len(server.running) >= most:
            server.waiting.append(self)
            self._connection.left = self._leave_the_line
        else:
            self.begin(self._request.arrived)

    def begin(self, now: float) -> None:
        """Serve it; the script's times count from ``now``."""
        record, asked = self._record, self._asked
        self._server.running[record.number] = self
        record.began = now
        if asked is None or not asked.stream or self._fault in WHOLE_FAULTS:
            self._serve_whole(now)
            return
        plan = steps(self._script, asked, self._times, self._fault, f"mock-{record.number}")
        chunked = self._script.framing == "chunked"
        Stream(self._connection, record, plan, self._done, chunked=chunked).start(now)

    @property
    def kv_tokens(self) -> int:
        """Tokens that it would hold in a KV cache now."""
        return self._record.prompt_tokens + sum(self._record.tokens)

    def _done(self, outcome: str) -> None:
        server, now = self._server, time.perf_counter()
        server.ledger.close(self._record, outcome, now)
        del server.running[self._record.number]
        if server.waiting:
            server.waiting.popleft().begin(now)

    def _leave_the_line(self) -> None:
        self._server.waiting.remove(self)
        self._server.ledger.close(self._record, "left", time.perf_counter())

    def _serve_whole(self, now: float) -> None:
        due = now + self._times.ttft
        tokens = 0
        if self._asked is not None:
            tokens = tokens_of(self._script, self._asked)
            due += self._times.interval * (-(-tokens // self._script.tokens_per_chunk) - 1)
        timer = asyncio.get_running_loop().call_at(due, self._write_whole, due, tokens)

        def left() -> None:
            timer.cancel()
            self._done("left")

        self._connection.left = left

    def _write_whole(self, due: float, tokens: int) -> None:
        connection, record, fault = self._connection, self._record, self._fault
        if fault == "hang-up":
            connection.close()
            self._done(fault)
            return
        reply = self._made(tokens)
        before = time.perf_counter()
        connection.send(reply, half=fault == "cut-body")
        record.first_byte = time.perf_counter()
        if tokens:
            record.due.append(due)
            record.writing.append(before)
            record.wrote.append(record.first_byte)
            record.tokens.append(tokens)
        if fault == "cut-body":
            connection.close()
            self._done(fault)
        else:
            self._done(fault or "ok")
            connection.over()

    def _made(self, tokens: int) -> Whole:
        failed = whole.failure(self._script, self._fault)
        if failed is not None:
            return failed
        if self._asked is not None:
            return whole.text(self._script, self._asked, tokens, f"mock-{self._record.number}")
        raw = self._request.body
        try:
            if self._request.path.endswith("/infer"):
                return whole.tensors(self._fault, self._request.headers, raw)
            return whole.embeddings(self._script, self._fault, raw)
        except BadRequestError as error:
            return error_reply(400, str(error))
