"""One request and what came of it: what was read, and when each piece had arrived."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from modelops_loadtests.client.clock import kernel_clock
from modelops_loadtests.client.failures import ClosedError
from modelops_loadtests.client.response import EventReader, ProtocolError, Response
from modelops_loadtests.client.watchdog import Watchdog
from modelops_loadtests.samples import Stamps

MAX_REPLY_BYTES = 256 * 1024 * 1024
_GRACE_SECONDS = 1.0


@dataclass(slots=True)
class Exchange:
    """What came of one request; times are of ``time.perf_counter``.

    ``error`` is the bounded class of what went wrong on the way (``refused``, ``reset``,
    ``closed``, ``timeout``, ``dns``, ``tls``, ``protocol``, ``connection``, and ``cut`` where the
    greenlet was killed), None where a whole reply came, whatever its status. ``end`` is when its
    last byte arrived, else when it was given up. ``is_stream``: its body went to the reader.
    ``send_lag`` is how long handing the request to the kernel took, in which the client may have
    rested: ``sent`` is early by no more. None where the request is so long that the server's
    reading enters it.
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
    send_lag: float | None = None


class Reading:
    """Takes what each read gave, until the reply is over; keeps its stamps and the reads' lag."""

    __slots__ = (
        "_exchange",
        "_lags",
        "_reader",
        "_response",
        "_watchdog",
        "_worst",
        "ended",
        "over",
        "stamped",
    )

    def __init__(
        self,
        exchange: Exchange,
        response: Response,
        reader: EventReader | None,
        watchdog: Watchdog,
    ) -> None:
        self._exchange, self._response = exchange, response
        self._reader, self._watchdog = reader, watchdog
        self._lags = self._worst = 0.0
        self.stamped = False
        """Whether every read so far had the kernel's stamp, as asked."""
        self.over = False
        self.ended = False
        """Whether the stream's own ending has come, if not the framing's."""

    def take(self, data: bytes, ancillary: list[Any]) -> None:
        """Take what one read gave; nothing is the end of the connection.

        Raises:
            ClosedError: the reply is not whole.
            ProtocolError: it is no HTTP, or more of it than any answer has.
        """
        now = time.perf_counter()
        response, exchange = self._response, self._exchange
        self._watchdog.touched = now
        if not data:
            if not response.until_close:
                raise ClosedError("the connection was closed before the reply was whole")
            self.over = True
            return
        arrived = kernel_clock().arrival(ancillary, now) if ancillary else None
        if arrived is None:
            self.stamped, arrived = False, now
        lag = now - arrived
        self._lags += lag
        if lag > self._worst:
            self._worst = lag
        exchange.bytes_received += len(data)
        if exchange.bytes_received > MAX_REPLY_BYTES:
            raise ProtocolError(f"a reply of more than {MAX_REPLY_BYTES} bytes")
        exchange.end = arrived
        if exchange.first_byte is None:
            exchange.first_byte = arrived
        response.feed(data, arrived)
        if response.complete:
            self.over = True
        elif self._reader is not None and self._reader.finished and not self.ended:
            self.ended = True
            # The framing's end follows at once, and frees the connection; or it never does.
            self.over = response.until_close
            self._watchdog.grace(_GRACE_SECONDS)

    def told(self) -> None:
        """Note in the exchange whose stamps it has, and how late the reads were."""
        reads = self._response.read
        if reads and self.stamped:
            self._exchange.stamps = "kernel"
            self._exchange.read_lag_max = self._worst
            self._exchange.read_lag_mean = self._lags / reads
