"""The server that is loaded: where it is, and how a request to it is written."""

from __future__ import annotations

import _socket
import ssl as standard
from typing import Any
from urllib.parse import quote, urlsplit

from gevent import socket, ssl

from modelops_loadtests.client.request import Request


class Target:
    """One server; shared by all connections to it.

    Its name is resolved once, and the address that took a connection first is tried first again.
    """

    def __init__(self, base_url: str, headers: dict[str, str]) -> None:
        parts = urlsplit(base_url)
        self.tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self.tls else 80)
        self._prefix = quote(parts.path.rstrip("/"), safe="/%")
        self._common = {"Host": parts.netloc, "User-Agent": "modelops-loadtest", **headers}
        self._addresses: list[Any] = []
        self._context = ssl.create_default_context() if self.tls else None

    def connect(self) -> Any:
        """Return a connected gevent socket.

        Raises:
            OSError: no address takes a connection; of ssl, too.
        """
        if not self._addresses:
            self._addresses = _addresses(self._host, self._port)
        failure: OSError | None = None
        for address in list(self._addresses):
            family, kind, protocol, _, place = address
            made = socket.socket(family, kind, protocol)
            try:
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                made.connect(place)
                if self._context is not None:
                    made = self._context.wrap_socket(made, server_hostname=self._host)
            except OSError as error:
                made.close()
                failure = error
                if isinstance(error, standard.SSLError):
                    break
                continue
            except BaseException:
                made.close()
                raise
            self._addresses.remove(address)
            self._addresses.insert(0, address)
            return made
        assert failure is not None  # noqa: S101
        raise failure

    def written(self, request: Request, request_id: str | None = None) -> bytes:
        """Return the request's bytes."""
        lines = [f"{request.method} {self._prefix}{request.path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in (self._common | request.headers).items()]
        if request_id is not None:
            lines.append(f"X-Request-Id: {request_id}")
        lines += [f"Content-Length: {len(request.body)}", "", ""]
        return "\r\n".join(lines).encode("latin-1") + request.body


def _addresses(host: str, port: int) -> list[Any]:
    try:
        # An address that is written as one needs no resolver, which works in a thread.
        return _socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, 0, _socket.AI_NUMERICHOST)
    except OSError:
        found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return found
