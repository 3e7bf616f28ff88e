"""The connections to one text engine: made when needed, kept for a while when idle."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from pathlib import Path

from yarl import URL

from modelops.errors import NotReadyError
from modelops_servers.front.openai.connection import Connection, connected
from modelops_servers.front.openai.settings import UpstreamSettings


class Pool:
    """Connections to a URL's host, or to a unix socket; used on one event loop."""

    def __init__(self, url: URL, socket: Path | None, settings: UpstreamSettings) -> None:
        self._url = url
        self._socket = socket
        self._settings = settings
        self._tls = None
        if socket is None and url.scheme == "https":
            self._tls = ssl.create_default_context()
        self._idle: deque[tuple[float, Connection]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def take(self) -> Connection:
        """Return the connection that was last given back, or a new one.

        Raises:
            NotReadyError: nobody accepts connections there.
        """
        oldest = asyncio.get_running_loop().time() - self._settings.keep_alive_seconds
        while self._idle:
            since, connection = self._idle.pop()
            if since >= oldest and connection.reusable:
                connection.reused = True
                return connection
            connection.abort()
        return await self.connect()

    async def connect(self) -> Connection:
        """Return a new connection.

        Raises:
            NotReadyError: nobody accepts connections there.
        """
        seconds = self._settings.connect_seconds
        connecting = asyncio.timeout(seconds)
        try:
            async with connecting:
                return await self._connect()
        except TimeoutError as error:
            if not connecting.expired():
                raise NotReadyError(f"the engine cannot be reached: {error}") from error
            raise NotReadyError(f"the engine accepts no connection within {seconds:g} s") from error
        except OSError as error:
            said = error.strerror or str(error)
            raise NotReadyError(f"the engine cannot be reached: {said}") from error

    def give(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end, if it can be used again."""
        if self._closed or not connection.reusable:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time(), connection))
        if self._timer is None:
            self._timer = loop.call_later(self._settings.keep_alive_seconds, self._sweep)

    def close(self) -> None:
        """Close what is idle, and keep nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        while self._idle:
            self._idle.pop()[1].abort()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        read_bytes = self._settings.read_bytes
        if self._socket is not None:
            return connected(
                await loop.create_unix_connection(lambda: Connection(read_bytes), str(self._socket))
            )
        host, port = self._url.raw_host or "", self._url.port or 80
        return connected(
            await loop.create_connection(lambda: Connection(read_bytes), host, port, ssl=self._tls)
        )

    def _sweep(self) -> None:
        """Close what has been idle for too long."""
        loop = asyncio.get_running_loop()
        seconds = self._settings.keep_alive_seconds
        now = loop.time()
        while self._idle and self._idle[0][0] + seconds <= now:
            self._idle.popleft()[1].abort()
        self._timer = None
        if self._idle:
            self._timer = loop.call_at(self._idle[0][0] + seconds, self._sweep)
