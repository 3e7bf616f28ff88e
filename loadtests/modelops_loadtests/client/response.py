"""One reply while it is parsed: its head, its body or its events, and what of it arrived when."""

from __future__ import annotations

from typing import Protocol

import httptools

from modelops_loadtests.client.sse import EventParser

MAX_HEAD_BYTES = 64 * 1024


class EventReader(Protocol):
    """Takes the events of one stream as they arrive; must not wait for anything."""

    finished: bool
    """Set by the reader when the protocol's own ending has come."""

    def event(self, kind: bytes, data: bytes, at: float, read: int) -> None:
        """Take an event that was complete at ``at`` (perf_counter), in the read of that number."""


class ProtocolError(Exception):
    """The peer does not speak HTTP as it should."""


class Response:
    """The parser's callbacks; ``arrived`` and ``read`` are those of the bytes being parsed."""

    __slots__ = (
        "_events",
        "_head_bytes",
        "_keep",
        "_parser",
        "_reader",
        "_sized",
        "arrived",
        "complete",
        "head_complete",
        "headers",
        "is_stream",
        "parts",
        "read",
        "status",
    )  # fmt: skip

    def __init__(self, reader: EventReader | None) -> None:
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._events: EventParser | None = None
        self._head_bytes = 0
        self._sized = False
        self._keep = False
        self.arrived = 0.0
        self.read = 0
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.head_complete = False
        self.complete = False
        self.is_stream = False
        """Whether the body is events that the reader was given."""
        self.parts: list[bytes] = []

    @property
    def until_close(self) -> bool:
        """Whether the body ends with the connection."""
        return self.head_complete and not self._sized

    @property
    def may_reuse(self) -> bool:
        """Whether the connection can carry another request."""
        return self._keep and self._sized

    def feed(self, data: bytes, arrived: float) -> None:
        """Parse what one read gave.

        Raises:
            ProtocolError: it is not HTTP, or its head does not end.
        """
        self.arrived = arrived
        self.read += 1
        if not self.head_complete:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise ProtocolError("it would speak another protocol") from None
        except httptools.HttpParserCallbackError as error:
            # A fault of the reader's, not of the peer's.
            raise error.__context__ or error from None
        except httptools.HttpParserError as error:
            raise ProtocolError(f"{type(error).__name__}: {error}") from None
        if not self.head_complete and self._head_bytes > MAX_HEAD_BYTES:
            raise ProtocolError(f"headers of more than {MAX_HEAD_BYTES} bytes")

    # The parser's calls

    def on_message_begin(self) -> None:
        """Refuse a second reply to one request."""
        if self.complete:
            raise ProtocolError("it sent more than one reply")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header of the head, not of what follows the body; of several the last."""
        if self.head_complete:
            return
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Decide what kind of body follows."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self.headers = {}
            return
        self.status, self.head_complete = status, True
        self._sized = (
            "content-length" in self.headers
            or self.headers.get("transfer-encoding", "").lower().endswith("chunked")
            or status in (204, 304)
        )
        coding = self.headers.get("content-encoding", "identity").strip().lower()
        if status == 200 and coding not in ("", "identity"):
            raise ProtocolError(f"its body is encoded ({coding[:20]}), which was not asked for")
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.is_stream = self._reader is not None and status == 200 and kind == "text/event-stream"
        if self.is_stream:
            self._events = EventParser()

    def on_body(self, data: bytes) -> None:
        """Pass events on, keep anything else."""
        if self._events is None or self._reader is None:
            self.parts.append(data)
            return
        for kind, payload in self._events.feed(data):
            self._reader.event(kind, payload, self.arrived, self.read)

    def on_message_complete(self) -> None:
        """Note the end, unless it is that of an interim reply."""
        self.complete = self.head_complete
        # The parser knows it here only.
        self._keep = bool(self._parser.should_keep_alive())
