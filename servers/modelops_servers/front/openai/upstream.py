"""One text engine as a front sees it: requests out, raw bytes in, every failure in our terms."""

from __future__ import annotations

import asyncio
import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

from modelops.errors import DeadlineError, EngineError, ModelopsError, NotReadyError
from modelops_servers.front.openai.headers import RawHeaders
from modelops_servers.front.openai.settings import UpstreamSettings

# aiohttp sends a larger body in pieces, from a file-like object.
_IN_PIECES_BYTES = 256 * 1024
_API = "/v1"
_LOOK_SECONDS = 0.5
_GRAIN_SECONDS = 0.002  # a timer's
# aiohttp says RuntimeError where a connection is gone that ended in no known way.
_FAILURES = (aiohttp.ClientError, HttpProcessingError, OSError, RuntimeError)


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
        self._root = url.rstrip("/").removesuffix(_API)
        self._socket = socket
        self._headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._session: aiohttp.ClientSession | None = None
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
        wait = first_by - now
        told = {**(headers or {}), **self._headers}
        try:
            async with asyncio.timeout(wait):
                response = await self._request(method, path, told, body)
        except aiohttp.ConnectionTimeoutError as error:
            raise NotReadyError(
                f"the engine accepts no connection within {known.connect_seconds:g} s"
            ) from error
        except TimeoutError as error:
            raise DeadlineError(f"the engine sent nothing within {wait:.3g} s") from error
        except aiohttp.ClientConnectorError as error:
            raise NotReadyError(f"the engine cannot be reached: {error.strerror}") from error
        except _FAILURES as error:
            raise EngineError(f"the engine ended before it answered ({_said(error)})") from error
        answer = Answer(response, first_by, deadline, known.idle_seconds, self._open.discard)
        self._open.add(answer)
        if 300 <= response.status < 400:
            answer.abort()
            raise EngineError(
                f"the engine answered with a redirect ({response.status}), which is not followed"
            )
        return answer

    def abandon(self, error: ModelopsError) -> None:
        """Let every open answer end with ``error``."""
        for answer in list(self._open):
            answer.abort(error)

    async def close(self) -> None:
        """Close every connection."""
        self.abandon(NotReadyError("the engine was let go"))
        if self._session is not None:
            await self._session.close()

    async def _request(
        self, method: str, path: str, headers: dict[str, str], body: bytes | memoryview
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = self._connect()
        how = SimpleNamespace(reused=False)
        url = URL(self._root + path, encoded=True)
        while True:
            data = io.BytesIO(body) if len(body) > _IN_PIECES_BYTES else body or None
            try:
                return await self._session.request(
                    method, url, headers=headers, data=data, trace_request_ctx=how,
                    allow_redirects=False,
                )  # fmt: skip
            except aiohttp.ServerTimeoutError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # An idle connection may close under a request, which then nobody has begun.
                if not how.reused:
                    raise
                how.reused = False

    def _connect(self) -> aiohttp.ClientSession:
        known = self.settings
        connector: aiohttp.BaseConnector
        if self._socket is not None:
            connector = aiohttp.UnixConnector(
                str(self._socket),
                limit=known.connections,
                keepalive_timeout=known.keep_alive_seconds,
            )
        else:
            connector = aiohttp.TCPConnector(
                limit=known.connections,
                keepalive_timeout=known.keep_alive_seconds,
                ttl_dns_cache=30,
            )
        traces = aiohttp.TraceConfig()
        traces.on_connection_reuseconn.append(_note_reuse)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=known.connect_seconds, sock_read=None
            ),
            trace_configs=[traces],
            read_bufsize=known.read_bytes,
        )


class Answer:
    """An answer on its way: its ``status``, its ``headers``, its bytes as they come.

    It ends with the last byte, or with ``abort``, which the engine sees at once.
    """

    __slots__ = (
        "_began", "_content", "_deadline", "_ended", "_first_by", "_idle_seconds", "_loop",
        "_on_end", "_response", "_timer", "_waiting", "_why", "headers", "status",
    )  # fmt: skip

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        first_by: float,
        deadline: float,
        idle_seconds: float,
        on_end: Callable[[Answer], None],
    ) -> None:
        """``first_by`` and ``deadline`` are on ``time.monotonic``'s clock."""
        self.status = response.status
        self.headers: RawHeaders = tuple((n.lower(), v) for n, v in response.raw_headers)
        self._response = response
        self._content = response.content
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
            chunk = await self._content.readany()
        except _FAILURES as error:
            return self._rest(error)
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
        self._end()
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            # close() would first send what the engine has not read of a request.
            connection.transport.abort()
        self._response.close()

    def _end(self) -> None:
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_end(self)

    def _rest(self, error: Exception) -> bytes:
        """Return what had come before the connection broke; once there is nothing more, raise."""
        if self._why is None:
            self._content.set_exception(None)  # type: ignore[arg-type]  # or it gives nothing away
            left = self._content.read_nowait()
            self._content.set_exception(error)
            self._began = self._began or bool(left)
            where = "in the middle of its answer" if self._began else "before the first byte"
            self._why = EngineError(f"the engine failed {where} ({_said(error)})")
            self._why.__cause__ = error
            if left:
                return left
        self._end()
        self._response.close()
        raise self._why

    def _look(self) -> None:
        """Give up an answer that is overdue; else look again when it could be."""
        now = time.monotonic()
        by = self._first_by
        if self._began:
            # Where nobody waits, the next wait has not even begun.
            by = min(self._deadline, min(now, self._waiting) + self._idle_seconds)
        connection = self._response.connection
        protocol = None if connection is None else connection.protocol
        if protocol is not None and not protocol.is_connected():
            # Where the framing of a body makes no sense, nobody else tells who waits for more.
            self._content.set_exception(aiohttp.ClientPayloadError("what it sent is no HTTP"))
        elif by > now:
            wait = min(max(by - now, _GRAIN_SECONDS), _LOOK_SECONDS)
            self._timer = self._loop.call_later(wait, self._look)
        elif now >= self._deadline:
            self.abort(DeadlineError("the request's deadline passed before its answer was whole"))
        else:
            what = "for too long" if self._began else "before its first byte was due"
            self.abort(DeadlineError(f"the engine sent nothing {what}"))


async def _note_reuse(
    session: aiohttp.ClientSession,  # noqa: ARG001
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,  # noqa: ARG001
) -> None:
    context.trace_request_ctx.reused = True


def _said(error: BaseException) -> str:
    return str(error)[:256] or type(error).__name__
