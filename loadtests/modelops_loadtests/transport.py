"""One HTTP exchange on gevent, with the moments that matter stamped by one monotonic clock."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from gevent import Timeout
from geventhttpclient import HTTPClient
from geventhttpclient.response import HTTPConnectionClosed, HTTPParseError

from modelops_loadtests.scenarios.scenario import Request


@dataclass(frozen=True)
class Exchange:
    """What came of one request; times are of ``time.perf_counter``.

    ``error`` is the bounded class of what went wrong on the way (``refused``, ``reset``,
    ``closed``, ``timeout``, ``dns``, ``tls``, ``protocol``, ``connection``), None where a whole
    reply came, whatever its status.
    """

    sent: float
    end: float
    first_byte: float | None
    status: int | None
    headers: dict[str, str]
    body: bytes
    error: str | None = None
    detail: str | None = None


class Transport:
    """One keep-alive connection to one server; no redirect is followed and nothing is retried."""

    def __init__(self, base_url: str, *, timeout: float, headers: dict[str, str]) -> None:
        parts = urlsplit(base_url)
        self._prefix = parts.path.rstrip("/")
        self._timeout = timeout
        self._host, self._port = parts.hostname or "", parts.port
        self._tls = parts.scheme == "https"
        self._headers = headers
        self._client = self._connect()

    def _connect(self) -> HTTPClient:
        return HTTPClient(
            self._host,
            port=self._port,
            ssl=self._tls,
            headers=self._headers,
            block_size=65536,
            concurrency=1,
            connection_timeout=self._timeout,
            network_timeout=self._timeout,
        )

    def send(self, request: Request) -> Exchange:
        """Send one request and read the whole reply; the timeout is over all of it."""
        first_byte: float | None = None
        status: int | None = None
        sent = time.perf_counter()
        try:
            with Timeout(self._timeout):
                response = self._client.request(
                    request.method, self._prefix + request.path, request.body, request.headers
                )
                first_byte = time.perf_counter()
                status = response.status_code
                body = response.read()
                if not response.message_complete:
                    raise HTTPConnectionClosed("the reply was cut short")
                end = time.perf_counter()
        except (Timeout, OSError, HTTPParseError) as error:
            end = time.perf_counter()
            # A timeout leaves the pool's one slot taken: only a new client is sure to be clean.
            self._client.close()
            self._client = self._connect()
            return Exchange(
                sent, end, first_byte, status, {}, b"", _kind(error, first_byte), _detail(error)
            )
        headers = {name.lower(): value for name, value in response.headers}
        return Exchange(sent, end, first_byte, status, headers, body)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def _kind(error: BaseException, first_byte: float | None) -> str:
    if isinstance(error, Timeout | TimeoutError):
        return "timeout"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "reset"
    if isinstance(error, HTTPConnectionClosed) or (
        isinstance(error, HTTPParseError) and first_byte is not None
    ):
        return "closed"
    if isinstance(error, socket.gaierror):
        return "dns"
    if isinstance(error, ssl.SSLError):
        return "tls"
    return "protocol" if isinstance(error, HTTPParseError) else "connection"


def _detail(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
