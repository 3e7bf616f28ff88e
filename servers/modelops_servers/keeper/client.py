"""Questions to an engine's own HTTP server, each within its time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

_MAX_BYTES = 16 * 2**20
_CONNECT_SECONDS = 2.0


class UnansweredError(Exception):
    """No whole answer came: refused, cut, too slow, or too long."""


class EngineClient:
    """Speaks with one server: over ``socket``, a unix socket, or to ``url``."""

    def __init__(
        self, url: str = "http://engine", *, socket: Path | None = None, key: str | None = None
    ) -> None:
        self._url = url.rstrip("/")
        connector = aiohttp.TCPConnector() if socket is None else aiohttp.UnixConnector(str(socket))
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            # What it is asked for is small; and no answer may lead elsewhere, least of all a key.
            auto_decompress=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def get(self, path: str, seconds: float) -> tuple[int, bytes]:
        """Return the status and body of ``path``; one that begins with http is whole.

        Raises:
            UnansweredError: no whole answer came within ``seconds``.
        """
        return await self._ask("GET", path, seconds)

    async def post(
        self, path: str, body: dict[str, Any], seconds: float | None, request_id: str
    ) -> tuple[int, bytes]:
        """Send JSON; return the status and body.

        Raises:
            UnansweredError: no whole answer came within ``seconds``.
        """
        return await self._ask(
            "POST",
            path,
            seconds,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "X-Request-Id": request_id},
        )

    async def _ask(
        self, method: str, path: str, seconds: float | None, **what: Any
    ) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=_CONNECT_SECONDS)
        url = path if path.startswith("http") else self._url + path
        try:
            async with self._session.request(
                method, url, timeout=timeout, allow_redirects=False, **what
            ) as reply:
                body = await reply.content.read(_MAX_BYTES)
                while not reply.content.at_eof():
                    more = await reply.content.read(_MAX_BYTES)
                    body += more
                    if len(body) > _MAX_BYTES:
                        raise UnansweredError(f"{path}: more than {_MAX_BYTES} bytes")
                return reply.status, body
        except TimeoutError as error:
            raise UnansweredError(f"{path}: no answer within {seconds:g} s") from error
        except (aiohttp.ClientError, OSError, ValueError, asyncio.IncompleteReadError) as error:
            raise UnansweredError(f"{path}: {str(error) or type(error).__name__}") from error
