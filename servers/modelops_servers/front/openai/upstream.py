"""One text engine as a front sees it: requests out, raw bytes in, every failure in our terms."""

from __future__ import annotations

import asyncio
import math
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path

from yarl import URL

from modelops.errors import DeadlineError, EngineError, ModelopsError, NotReadyError
from modelops_servers.front.openai.connection import BrokenError, Connection
from modelops_servers.front.openai.headers import RawHeaders
from modelops_servers.front.openai.pool import Pool
from modelops_servers.front.openai.settings import UpstreamSettings

_API = "/v1"
_LOOK_SECONDS = 0.5
_GRAIN_SECONDS = 0.002  # a timer's


class Upstream:
    """An HTTP server that speaks OpenAI's API, at a unix socket or a URL.

    All methods are called on one event loop.
    """

    def __init__(
        self,
        url: str = "http://engine",
        *,
        socket: Path | None = None,
        key: str | None = None,
        settings: UpstreamSettings | None = None,
    ) -> None:
        """``url`` with or without its ``/v1``; with a ``socket`` it only names the host."""
        self.settings = settings or UpstreamSettings()
        root = URL(url.rstrip("/").removesuffix(_API))
        self._path = root.raw_path.rstrip("/").encode()
        self._told = _told(root, key)
        self._pool = Pool(root, socket, self.settings)
        self._open: set[Answer] = set()

    @property
    def in_flight(self) -> int:
        """Answers that have begun and not ended."""
        return len(self._open)

    async def open(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        deadline: float = math.inf,
        streams: bool = False,
    ) -> Answer:
        """Send a request and return its answer as soon as its status and headers are there.

        ``path`` starts with ``/v1/`` or is one of the engine's own, such as ``/tokenize``.
        ``deadline`` is on ``time.monotonic``'s clock. ``streams`` says that the first byte is to
        be expected before the whole answer is made. Cancelling the call closes the connection.

        Raises:
            NotReadyError: nobody accepts connections there.
            DeadlineError: no answer in time.
            EngineError: the connection broke, or what came is no HTTP.
        """
        known = self.settings
        now = time.monotonic()
        deadline = min(deadline, now + known.total_seconds)
        first_by = min(deadline, now + known.first_byte_seconds) if streams else deadline
        head = self._head(method, path, headers or {}, len(body))
        try:
            async with asyncio.timeout(first_by - now):
                connection = await self._answered(head, body)
        except TimeoutError as error:
            raise DeadlineError(f"the engine sent nothing within {first_by - now:.3g} s") from error
        except BrokenError as error:
            raise EngineError(f"the engine ended before it answered ({error})") from error
        answer = Answer(connection, first_by, deadline, known.idle_seconds, self._ended)
        self._open.add(answer)
        if 300 <= answer.status < 400:
            answer.abort()
            raise EngineError(
                f"the engine answered with a redirect ({answer.status}), which is not followed"
            )
        return answer

    def abandon(self, error: ModelopsError) -> None:
        """Let every open answer end with ``error``."""
        for answer in list(self._open):
            answer.abort(error)

    async def close(self) -> None:
        """Close every connection."""
        self.abandon(NotReadyError("the engine was let go"))
        self._pool.close()
        await asyncio.sleep(0)  # the transports end in the loop's next turn

    async def _answered(self, head: bytes, body: bytes | memoryview) -> Connection:
        """Send a request; return its connection once the answer's head is there."""
        connection = await self._pool.take()
        while True:
            try:
                connection.send(head, body)
                await connection.head()
                return connection
            except BrokenError:
                # An idle connection may close under a request, which then nobody has begun.
                if not (connection.reused and connection.untouched):
                    raise
            except BaseException:
                connection.abort()
                raise
            connection = await self._pool.connect()

    def _head(self, method: str, path: str, headers: Mapping[str, str], size: int) -> bytes:
        told = [f"{name}: {value}\r\n" for name, value in headers.items()]
        if size or method != "GET":
            told.append(f"content-length: {size}\r\n")
        lines = "".join(told)
        if lines.count("\n") != len(told) or lines.count("\r") != len(told):
            raise ValueError("a header of the request holds a line break")
        return b"%s %s%s HTTP/1.1\r\n%s%s\r\n" % (
            method.encode(), self._path, path.encode(), self._told, lines.encode("latin-1"),
        )  # fmt: skip

    def _ended(self, answer: Answer, connection: Connection) -> None:
        self._open.discard(answer)
        self._pool.give(connection)


class Answer:
    """An answer on its way: its ``status``, its ``headers``, its bytes as they come.

    It ends with the last byte, or with ``abort``, which the engine sees at once.
    """

    __slots__ = (
        "_began", "_connection", "_deadline", "_ended", "_first_by", "_idle_seconds", "_loop",
        "_on_end", "_timer", "_waiting", "_why", "headers", "status",
    )  # fmt: skip

    def __init__(
        self,
        connection: Connection,
        first_by: float,
        deadline: float,
        idle_seconds: float,
        on_end: Callable[[Answer, Connection], None],
    ) -> None:
        """``first_by`` and ``deadline`` are on ``time.monotonic``'s clock."""
        self.status = connection.status
        self.headers: RawHeaders = connection.headers
        self._connection = connection
        self._first_by = first_by
        self._deadline = deadline
        self._idle_seconds = idle_seconds
        self._on_end = on_end
        self._began = False
        self._ended = False
        self._why: ModelopsError | None = None
        # Since when somebody waits for the next bytes: a slow client is not the engine's fault.
        self._waiting = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes:
        """Return the bytes that have come, at least one; none at the end.

        Raises:
            DeadlineError: nothing came in time.
            EngineError: the connection broke, or the body is cut short.
            ModelopsError: what ``abort`` was given.
        """
        self._waiting = time.monotonic()
        if self._timer is None:
            self._look()
        try:
            chunk = await self._connection.read()
        except BrokenError as error:
            if self._why is None:
                where = "in the middle of its answer" if self._began else "before the first byte"
                self._why = EngineError(f"the engine failed {where} ({error})")
                self._why.__cause__ = error
            self._end()
            raise self._why from self._why.__cause__
        self._waiting = math.inf
        if chunk:
            self._began = True
        else:
            self._end()
        return chunk

    async def whole(self, most: int) -> bytes:
        """Return all that comes.

        Raises:
            EngineError: it is more than ``most`` bytes.
            ModelopsError: as ``read``.
        """
        parts = []
        size = 0
        while part := await self.read():
            parts.append(part)
            size += len(part)
            if size > most:
                raise EngineError(f"the engine's answer is over {most} bytes")
        return b"".join(parts)

    def abort(self, error: ModelopsError | None = None) -> None:
        """Close the connection now; who waits in ``read`` gets ``error``. Harmless at the end."""
        if self._ended:
            return
        self._why = error or EngineError("the answer was given up")
        self._connection.abort()
        self._end()

    def _end(self) -> None:
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_end(self, self._connection)

    def _look(self) -> None:
        """Give up an answer that is overdue; else look again when it could be."""
        now = time.monotonic()
        by = self._first_by
        if self._began:
            # Where nobody waits, the next wait has not even begun.
            by = min(self._deadline, min(now, self._waiting) + self._idle_seconds)
        if by > now:
            wait = min(max(by - now, _GRAIN_SECONDS), _LOOK_SECONDS)
            self._timer = self._loop.call_later(wait, self._look)
        elif now >= self._deadline:
            self.abort(DeadlineError("the request's deadline passed before its answer was whole"))
        else:
            what = "for too long" if self._began else "before its first byte was due"
            self.abort(DeadlineError(f"the engine sent nothing {what}"))


def _told(root: URL, key: str | None) -> bytes:
    """Return the headers of every request."""
    host = root.raw_authority.rpartition("@")[2]
    lines = [f"host: {host}"]
    if key is not None:
        lines.append(f"authorization: Bearer {key}")
    elif root.raw_user is not None:
        pair = f"{root.user or ''}:{root.password or ''}"
        lines.append(f"authorization: Basic {b64encode(pair.encode()).decode()}")
    return "".join(f"{line}\r\n" for line in lines).encode()
