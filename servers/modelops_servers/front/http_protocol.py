"""HTTP/1.1 as the gateway serves it: httptools parses, every wait and every buffer is bounded.

uvicorn accepts the connections and runs the server; this class takes the place of its own
protocol, which has no bounds on headers and takes twice the time for a request.

A client that sends no more gets the answers to the requests that it has sent whole, where it can be
told from one that has left (``http_half_close``): it speaks HTTP/1.1, and no stream has begun.
Where it cannot be told, it counts as gone, and the work for it is withdrawn.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from email.utils import formatdate
from typing import Any, cast
from urllib.parse import unquote

import httptools
import orjson
from uvicorn.config import Config
from uvicorn.server import ServerState

from modelops_servers.front.http_cycle import HttpCycle
from modelops_servers.front.http_filling import Filling
from modelops_servers.front.http_half_close import HalfClosed

HEAD_BYTES = 64 * 1024
"""Most bytes of one request's headers together."""
LINE_BYTES = 16 * 1024
"""Most bytes of a request's target."""

# How much of a body may wait for the application before reading pauses.
_QUEUED = 16  # requests that may follow one that is being answered
_HIGH_WATER = 256 * 1024
# A client that is still sending when it is refused gets this long to read why: closing at once
# would reset the connection under the answer.
_LINGER_SECONDS = 2.0
_REASONS = {400: b"Bad Request", 408: b"Request Timeout", 431: b"Request Header Fields Too Large"}
_FRAMING = (b"content-length", b"transfer-encoding")


class HttpState(ServerState):
    """What the connections of one server share."""

    def __init__(self, header_seconds: float, keep_alive_seconds: float) -> None:
        super().__init__()
        self.header_seconds = header_seconds
        self.keep_alive_seconds = keep_alive_seconds
        self.tick(0.0)

    def tick(self, now: float) -> None:
        """Once a second: the date for the answers, an end for the connections that are late."""
        self.date = b"date: " + formatdate(usegmt=True).encode() + b"\r\n"
        connections: Any = self.connections
        for connection in [c for c in connections if c.deadline < now]:
            connection.expire(now)


class _RefusedError(Exception):
    """Raised within the parser's callbacks: the status and the message that the client gets."""


_TOO_LARGE = (431, "the request's headers or its target are too long")
_HOSTS = (400, "a request of HTTP/1.1 has one Host header, and none has two")


class HttpProtocol(asyncio.Protocol):
    """One connection.

    ``deadline``, on the loop's clock, is when it ends unless something happens before: the head of
    a request is whole, a new request begins, the client reads on. While a request is answered
    there is none: that time is the application's to bound.
    """

    def __init__(
        self,
        config: Config,
        server_state: HttpState,
        app_state: dict[str, Any],  # noqa: ARG002 - of the lifespan, which is off
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.state = server_state
        self.deadline = math.inf
        self.transport: asyncio.Transport
        self.writable: asyncio.Event | None = None
        self._app = config.loaded_app
        self._loop = _loop or asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        # The bytes since the last that brought something: a whole head or a piece of a body.
        self._arrived = 0
        self._in_head = False
        self._split = False
        self._timing = True
        self._upgrading = False
        self._dropping = False
        self._paused = False
        self._unsent = 0
        self._url = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._expect = False
        self._hosts = 0
        self._half_closed: HalfClosed | None = None
        # The newest request; the one that is being answered; those behind it.
        self._cycle: HttpCycle | None = None
        self._running: HttpCycle | None = None
        self._queue: deque[tuple[HttpCycle, dict[str, Any]]] = deque()

    # The transport's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the first head is expected from now on."""
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class
        self.state.connections.add(self)  # type: ignore[arg-type]
        self._server = _address(transport.get_extra_info("sockname"))
        self._client = _address(transport.get_extra_info("peername"))
        self.deadline = self._loop.time() + self.state.header_seconds

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Tell every request that its client is gone."""
        self.state.connections.discard(self)
        self._dropping = True
        if self._half_closed is not None:
            self._half_closed.stop()
        for cycle in (self._running, *(cycle for cycle, _ in self._queue)):
            if cycle is not None and not cycle.complete:
                cycle.disconnected = True
                cycle.wake()
        self._queue.clear()
        self.resume_writing()
        # These hold this object.
        self._parser = None  # type: ignore[assignment]
        self._cycle = self._running = None

    def data_received(self, data: bytes) -> None:
        """Parse; what is no HTTP, or too much of it, is refused."""
        if self._dropping:
            return
        self._arrived += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, _RefusedError):
                self._refuse(*error.__context__.args)
            else:
                self._refuse(400, f"this is no HTTP request: {error}")
            return
        if self._arrived or self._in_head:
            self._unfinished()

    def eof_received(self) -> bool:
        """Return whether the connection stays: a whole request waits for its answer."""
        if self._half_closed is not None:
            return True
        if self._queue and not self._queue[-1][0].whole:
            self._queue.pop()
        running = self._running
        if running is None or not running.whole or running.old or running.streaming:
            return False
        self._last().keep_alive = False
        self._half_closed = HalfClosed(self.transport, self._loop)
        if not running.started:
            self._half_closed.probe()
        self._half_closed.watch()
        return True

    def pause_writing(self) -> None:
        """Let ``send`` wait; a client that reads nothing is left after a while."""
        self.writable = asyncio.Event()
        self._unsent = self.transport.get_write_buffer_size()
        self.deadline = self._loop.time() + self.state.keep_alive_seconds

    def resume_writing(self) -> None:
        """Let ``send`` go on."""
        if self.writable is not None:
            self.writable.set()
            self.writable = None
            self._wait_for_client()

    # The parser's calls

    def on_message_begin(self) -> None:
        """A head begins."""
        if self._upgrading:
            return
        self._url = b""
        self._headers = []
        self._expect = False
        self._hosts = 0
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        """A piece of the target came."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header is whole."""
        if not self._in_head:
            return  # a trailer; the application is not told of those
        name = name.lower()
        if name == b"expect":
            self._expect = value.lower() == b"100-continue"
        elif name == b"host":
            self._hosts += 1
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the one that is being answered."""
        if self._upgrading:
            self._upgrading = False
            return
        if self._arrived > HEAD_BYTES or self._split:
            self._check_size()
        url, parser, headers = self._url, self._parser, self._headers
        if len(url) > LINE_BYTES:
            raise _RefusedError(*_TOO_LARGE)
        parsed = httptools.parse_url(url)
        raw_path = parsed.path
        path = raw_path.decode("ascii")
        if "%" in path:
            path = unquote(path)
        version = parser.get_http_version()
        old = version != "1.1"
        if old and version != "1.0":
            raise httptools.HttpParserError(f"HTTP/{version} is not spoken here")
        if self._hosts != 1 and not (old and not self._hosts):
            raise _RefusedError(*_HOSTS)
        method = parser.get_method().decode("ascii")
        if parser.should_upgrade():
            self._upgrading = any(name in _FRAMING for name, _ in headers)
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": headers,
            "state": {},
            "method": method,
            "path": path,
            "raw_path": raw_path,
            "query_string": parsed.query or b"",
        }
        cycle = self._cycle = HttpCycle(
            self,
            head_only=method == "HEAD",
            expect=self._expect,
            keep_alive=not old and parser.should_keep_alive(),
            old=old,
        )
        self._arrived = 0
        self._in_head = self._split = self._timing = False
        if self._running is None:
            self._start(cycle, scope)
        else:
            self._queue.append((cycle, scope))
            if len(self._queue) >= _QUEUED:
                # Not sooner: who does not read does not see a client leave either.
                self._pause_reading()

    def on_body(self, body: bytes) -> None:
        """A piece of a body came."""
        self._arrived = 0
        cycle = self._cycle
        if cycle is None or cycle.complete:
            return
        cycle.chunks.append(body)
        cycle.pending += len(body)
        if cycle.pending > _HIGH_WATER:
            self._pause_reading()
        cycle.wake()

    def on_message_complete(self) -> None:
        """A request is whole."""
        if self._upgrading:
            return
        self._arrived = 0
        cycle = self._cycle
        if cycle is not None:
            cycle.whole = True
            cycle.wake()
            if cycle.complete:
                # Answered before it was whole, and now it is.
                self._timing = False
                self._wait_for_client()

    # The cycles' calls

    def answered(self, cycle: HttpCycle) -> None:
        """Go on after an answer's last byte: to the next request, or to the end."""
        self.state.total_requests += 1
        self._running = None
        if self.transport.is_closing():
            return
        if not cycle.keep_alive:
            if cycle.whole and not self._dropping:
                self._close()
            else:
                self._linger()
            return
        if self._queue:
            self._start(*self._queue.popleft())
        else:
            self._wait_for_client()
        self.resume_reading()

    def ended(self, cycle: HttpCycle) -> None:
        """Forget a request's task; without a whole answer the connection is of no more use."""
        if cycle.task is not None:
            self.state.tasks.discard(cycle.task)
        if not (cycle.complete or cycle.disconnected):
            self._close()

    def resume_reading(self) -> None:
        """Read on, where reading was paused."""
        if self._paused and not self.transport.is_closing():
            self._paused = False
            self.transport.resume_reading()

    def fill(self, view: memoryview) -> Filling:
        """Let the next ``len(view)`` bytes, the rest of a body, go straight into ``view``."""
        filling = Filling(self, view)
        self._switch(filling)
        return filling

    def filled(self, *, whole: bool) -> None:
        """Parse again; after a body that is not whole nothing more can be."""
        self._switch(self)
        if whole:
            # The old one still waits for the bytes that it was not shown.
            self._parser = httptools.HttpRequestParser(self)
            self.on_message_complete()
        else:
            self._dropping = True
            if self._cycle is not None:
                self._cycle.keep_alive = False

    # The server's calls

    def shutdown(self) -> None:
        """Close, at once or after what is being answered."""
        if self._running is None:
            self._close()
        else:
            self._last().keep_alive = False

    def expire(self, now: float) -> None:
        """End what its ``deadline`` found unfinished."""
        unsent = self.transport.get_write_buffer_size()
        closing = self.transport.is_closing()
        if self._dropping and not closing:
            self._close()
        elif unsent and unsent != self._unsent:
            # A slow reader, but it reads.
            self._unsent = unsent
            self.deadline = now + self.state.keep_alive_seconds
        elif unsent or closing:
            self.transport.abort()
        elif self._in_head:
            seconds = self.state.header_seconds
            self._refuse(408, f"the request's headers did not arrive within {seconds:g} s")
        else:
            self._close()

    # Within

    def _feed(self, data: bytes | memoryview) -> None:
        while True:
            try:
                self._parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # No other protocol is spoken here, so HTTP goes on; the parser would stop and
                # take a body for the new protocol's. One that did not see the wish reads on.
                data = memoryview(data)[upgrade.args[0] :]
                self._parser = httptools.HttpRequestParser(self)
                if self._upgrading:
                    framing = [b"%s: %s\r\n" % h for h in self._headers if h[0] in _FRAMING]
                    self._parser.feed_data(b"POST / HTTP/1.1\r\n%s\r\n" % b"".join(framing))

    def _check_size(self) -> None:
        size = len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._headers)
        if size > HEAD_BYTES:
            raise _RefusedError(*_TOO_LARGE)

    def _unfinished(self) -> None:
        """A packet ended within a head, or brought neither a head nor a piece of a body."""
        if self._arrived > HEAD_BYTES:
            self._refuse(431, "the request's headers are too long")
            return
        if not self._arrived:
            # This head began behind another request: only a count of its own tells its size.
            self._split = True
        self._wait_for_client()

    def _start(self, cycle: HttpCycle, scope: dict[str, Any]) -> None:
        self._running = cycle
        self._wait_for_client()
        cycle.task = self._loop.create_task(cycle.run(self._app, scope))
        self.state.tasks.add(cycle.task)

    def _wait_for_client(self) -> None:
        """Set the deadline by what the client owes now; a drip never puts it off."""
        if self.writable is not None:
            return
        if self._running is not None:
            self.deadline = math.inf
        elif self._in_head or self._arrived or not (self._cycle is None or self._cycle.whole):
            if not self._timing:
                self._timing = True
                self.deadline = self._loop.time() + self.state.header_seconds
        else:
            self.deadline = self._loop.time() + self.state.keep_alive_seconds

    def _last(self) -> HttpCycle:
        """Return the last request that is not answered."""
        assert self._running is not None  # noqa: S101 - callers have looked
        return self._queue[-1][0] if self._queue else self._running

    def _refuse(self, status: int, message: str) -> None:
        """Read nothing more, and say why where that cannot be taken for another's answer."""
        self._dropping = True
        newest = self._cycle
        if newest is not None and not newest.whole and not self._in_head:
            # It is the newest request's body that is off.
            if newest.complete:
                self._close()
                return
            if newest is self._running:
                self._running = None
                newest.disconnected = True
                newest.wake()
                if newest.started:
                    self._close()
                    return
            else:
                self._queue.pop()
        if self._running is not None:
            # The requests before it get their answers; the end of the connection is this one's.
            self._last().keep_alive = False
            return
        body = orjson.dumps({"error": message})
        self.transport.write(
            b"HTTP/1.1 %d %s\r\n%scontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%s"
            % (status, _REASONS[status], self.state.date, len(body), body)
        )
        self._linger()

    def _linger(self) -> None:
        """Finish sending, throw away what still comes, and leave soon."""
        self._dropping = True
        self._queue.clear()
        self.resume_reading()
        if self._half_closed is None and self.transport.can_write_eof():
            self.transport.write_eof()
            self.deadline = self._loop.time() + _LINGER_SECONDS
        else:
            self._close()

    def _close(self) -> None:
        """Close once everything is sent, if the client takes it."""
        self._dropping = True
        self._unsent = self.transport.get_write_buffer_size()
        self.deadline = self._loop.time() + self.state.keep_alive_seconds
        self.transport.close()

    def _pause_reading(self) -> None:
        if not self._paused and not self.transport.is_closing():
            self._paused = True
            self.transport.pause_reading()

    def _switch(self, protocol: asyncio.BaseProtocol) -> None:
        if self.transport.is_closing():
            return
        if not self._paused:
            self.transport.pause_reading()
        self.transport.set_protocol(protocol)
        self._paused = False
        self.transport.resume_reading()


def _address(info: Any) -> tuple[str, int] | None:
    return (info[0], info[1]) if isinstance(info, tuple) else None
