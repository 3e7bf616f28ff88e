"""What can go wrong on the way, in a few bounded classes."""

from __future__ import annotations

import socket
import ssl

from gevent import GreenletExit

from modelops_loadtests.client.response import ProtocolError
from modelops_loadtests.client.sse import EventTooLargeError
from modelops_loadtests.client.watchdog import ExchangeTimeoutError


class ClosedError(Exception):
    """The peer closed the connection in the middle."""


_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], str], ...] = (
    (GreenletExit, "cut"),
    ((ExchangeTimeoutError, TimeoutError), "timeout"),
    (ConnectionRefusedError, "refused"),
    ((ConnectionResetError, BrokenPipeError), "reset"),
    (ClosedError, "closed"),
    (socket.gaierror, "dns"),
    (ssl.SSLError, "tls"),
    ((ProtocolError, EventTooLargeError), "protocol"),
    (OSError, "connection"),
)


def kind_of(error: BaseException) -> str | None:
    """Return the class of a failure; None where it is none of the connection's."""
    return next((name for kinds, name in _KINDS if isinstance(error, kinds)), None)


def detail_of(error: BaseException) -> str:
    """Return what it says of itself, shortened."""
    return f"{type(error).__name__}: {error}"[:200]
