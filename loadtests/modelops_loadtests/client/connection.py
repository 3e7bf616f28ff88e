"""One keep-alive connection to one server: a request, its reply, and when every piece arrived."""

from __future__ import annotations

import contextlib
import socket as standard
import time
from dataclasses import dataclass
from typing import Any

from gevent import GreenletExit, get_hub, ssl

from modelops_loadtests.client.clock import ANCILLARY_BYTES, KernelClock, ask_for_stamps
from modelops_loadtests.client.failures import ClosedError, detail_of, kind_of
from modelops_loadtests.client.request import Request
from modelops_loadtests.client.response import EventReader, Response
from modelops_loadtests.client.target import Target
from modelops_loadtests.client.watchdog import ExchangeTimeoutError, Watchdog
from modelops_loadtests.samples import Stamps

_READ_BYTES = 65536
_GRACE_SECONDS = 1.0
_READABLE = 1
_clock = KernelClock()


@dataclass(slots=True)
class Exchange:
    """What came of one request; times are of ``time.perf_counter``.

    ``error`` is the bounded class of what went wrong on the way (``refused``, ``reset``,
    ``closed``, ``timeout``, ``dns``, ``tls``, ``protocol``, ``connection``, and ``cut`` where the
    greenlet was killed), None where a whole reply came, whatever its status. ``end`` is when its
    last byte arrived, else when it was given up. ``is_stream``: its body went to the reader.
    """

    sent: float
    end: float = 0.0
    first_byte: float | None = None
    status: int | None = None
    headers: dict[str, str] | None = None
    body: bytes = b""
    is_stream: bool = False
    bytes_received: int = 0
    error: str | None = None
    detail: str | None = None
    stamps: Stamps = "user"
    read_lag_max: float | None = None
    read_lag_mean: float | None = None


class Connection:
    """Connects when it must, sends one request at a time, follows and retries nothing."""

    def __init__(
        self, target: Target, *, timeout: float, idle_timeout: float | None = None
    ) -> None:
        """``timeout`` is for all of an exchange, ``idle_timeout`` from one byte to the next."""
        self._target = target
        self._timeout, self._idle_timeout = timeout, idle_timeout
        self._socket: Any = None
        self._watcher: Any = None
        self._stamped = False

    def send(
        self,
        request: Request,
        reader: EventReader | None = None,
        request_id: str | None = None,
    ) -> Exchange:
        """Send one request and take in the whole reply; a stream's events go to ``reader``.

        Of a greenlet that is killed meanwhile the exchange comes back with the error ``cut``, so
        that it can be recorded; the caller then raises GreenletExit.
        """
        exchange = Exchange(sent=time.perf_counter())
        response = Response(reader)
        reusable = False
        watchdog = Watchdog(self._timeout, self._idle_timeout)
        try:
            self._ready()
            self._write(self._target.written(request, request_id))
            self._read(exchange, response, reader, watchdog)
            reusable = response.may_reuse
        except (ExchangeTimeoutError, GreenletExit, Exception) as error:
            exchange.error = kind_of(error)
            if exchange.error is None:
                raise
            exchange.detail = detail_of(error)
            exchange.end = time.perf_counter()
        finally:
            watchdog.cancel()
            if not reusable:
                self.close()
        exchange.status, exchange.headers = response.status, response.headers
        exchange.is_stream = response.is_stream
        exchange.body = b"".join(response.parts)
        return exchange

    def close(self) -> None:
        """Close the connection; the next request makes a new one."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ready(self) -> None:
        """Connect, unless there is a connection that the server has not closed meanwhile."""
        if self._socket is not None:
            if self._quiet():
                return
            self.close()
        self._socket = self._target.connect()
        self._stamped = _clock.works and not self._target.tls and ask_for_stamps(self._socket)
        self._watcher = get_hub().loop.io(self._socket.fileno(), _READABLE)

    def _quiet(self) -> bool:
        """Return whether nothing waits to be read: neither an end nor what nobody asked for."""
        if self._target.tls:
            return True
        try:
            self._socket._sock.recv(1, standard.MSG_PEEK | standard.MSG_DONTWAIT)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    def _write(self, data: bytes) -> None:
        # A server may answer, and close, before it has taken the whole body: what it said is
        # read, and only where it said nothing is the write's failure the outcome.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
            self._socket.sendall(data)

    def _read(
        self,
        exchange: Exchange,
        response: Response,
        reader: EventReader | None,
        watchdog: Watchdog,
    ) -> None:
        lags = 0.0
        worst = 0.0
        stamped = self._stamped
        in_grace = False
        try:
            while not response.complete:
                data, ancillary = self._receive()
                now = time.perf_counter()
                watchdog.touched = now
                if not data:
                    if not response.until_close:
                        raise ClosedError("the connection was closed before the reply was whole")
                    break
                arrived = _clock.arrival(ancillary, now) if ancillary else None
                if arrived is None:
                    stamped, arrived = False, now
                lag = now - arrived
                lags += lag
                if lag > worst:
                    worst = lag
                exchange.bytes_received += len(data)
                exchange.end = arrived
                if exchange.first_byte is None:
                    exchange.first_byte = arrived
                response.feed(data, arrived)
                if reader is not None and reader.finished and not in_grace:
                    if response.until_close:
                        break
                    # The framing's end follows at once, and frees the connection; or it never does.
                    in_grace = True
                    watchdog.grace(_GRACE_SECONDS)
        except ExchangeTimeoutError:
            if not in_grace:
                raise
        finally:
            if response.read and stamped:
                exchange.stamps = "kernel"
            if response.read and self._stamped:
                exchange.read_lag_max, exchange.read_lag_mean = worst, lags / response.read

    def _receive(self) -> tuple[bytes, list[Any]]:
        if not self._stamped:
            return self._socket.recv(_READ_BYTES), []
        while True:
            # Waiting first: mostly nothing is there yet, and then the call would be in vain.
            get_hub().wait(self._watcher)
            try:
                data, ancillary, _, _ = self._socket._sock.recvmsg(_READ_BYTES, ANCILLARY_BYTES)
            except BlockingIOError:
                continue
            return data, ancillary
