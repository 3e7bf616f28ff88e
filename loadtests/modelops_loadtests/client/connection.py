"""One keep-alive connection to one server: a request, its reply, and when every piece arrived."""

from __future__ import annotations

import contextlib
import socket as standard
import time
from typing import Any

from gevent import GreenletExit, get_hub, getcurrent, ssl

from modelops_loadtests.client.clock import ANCILLARY_BYTES, ask_for_stamps, kernel_clock
from modelops_loadtests.client.exchange import Exchange, Reading
from modelops_loadtests.client.failures import detail_of, kind_of
from modelops_loadtests.client.request import Request
from modelops_loadtests.client.response import EventReader, Response
from modelops_loadtests.client.target import Target
from modelops_loadtests.client.watchdog import ExchangeTimeoutError, Watchdog

READ_BYTES = 65536
_SURELY_BUFFERED = 16384
"""So much a kernel takes at once of a connection on which nothing waits to be sent."""
_READABLE = 1


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
        self._stamps = kernel_clock().works
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
        reading = Reading(exchange, response, reader, watchdog)
        try:
            data = self._target.written(request, request_id)
            self._ready(exchange)
            ready = time.perf_counter()
            self._write(data)
            if len(data) <= _SURELY_BUFFERED:
                exchange.send_lag = time.perf_counter() - ready
            reading.stamped = self._stamped
            self._read(reading)
            reusable = response.may_reuse
        except (ExchangeTimeoutError, GreenletExit, Exception) as error:
            kind = kind_of(error)
            if kind is None:
                raise
            # Where only the framing's end never came, all of the stream is there.
            if not (isinstance(error, ExchangeTimeoutError) and reading.ended):
                exchange.error, exchange.detail = kind, detail_of(error)
                exchange.end = time.perf_counter()
        finally:
            watchdog.cancel()
            if not reusable:
                self.close()
        reading.told()
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

    def _ready(self, exchange: Exchange) -> None:
        """Connect, unless there is a connection that the server has not closed meanwhile.

        A request is sent from the moment at which its connection is wanted: connecting is waited
        for by whoever asks, and belongs to its latency.
        """
        if self._socket is not None:
            if self._quiet():
                exchange.sent = time.perf_counter()
                return
            self.close()
        exchange.sent = time.perf_counter()
        self._socket = self._target.connect()
        self._stamped = self._stamps and not self._target.tls and ask_for_stamps(self._socket)
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

    def _read(self, reading: Reading) -> None:
        if self._target.tls:
            while not reading.over:
                reading.take(self._socket.recv(READ_BYTES), [])
            return
        # Bytes are taken by a callback of the loop: a switch to the greenlet for every token would
        # cost as much as parsing it.
        hub, greenlet = get_hub(), getcurrent()
        sock = self._socket._sock
        failure: BaseException | None = None

        def readable() -> None:
            nonlocal failure
            try:
                data, ancillary, _, _ = sock.recvmsg(READ_BYTES, ANCILLARY_BYTES)
                reading.take(data, ancillary)
            except BlockingIOError:
                return
            except BaseException as error:  # noqa: BLE001
                failure = error
            if reading.over or failure is not None:
                self._watcher.stop()
                greenlet.switch()

        self._watcher.start(readable)
        try:
            while not reading.over and failure is None:
                hub.switch()
        finally:
            self._watcher.stop()
        if failure is not None:
            raise failure
