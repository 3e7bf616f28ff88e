"""Reads a token stream on its way, beside it and never in it: how it went, and how much it was.

The bytes come in any pieces. Nearly all events of a stream differ in nothing but their text: such
ones are told by comparing bytes, and JSON is read only where an event matters.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import orjson

from modelops_servers.front.openai.usage import Usage, usage_in

MAX_EVENT_BYTES = 1 << 20
"""Of an event larger than this only the beginning is kept and read, which tells how it ends."""

Outcome = Literal["finished", "error", "truncated"]

# An event ends with an empty line; lines end with CR LF, LF or CR. Of one cut in pieces the last
# three bytes decide.
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_END_BYTES = 4
_BREAKS = b"\r\n"
_LINE = re.compile(rb"\r\n|\n|\r")
_DONE = b"[DONE]"
_MARKS = (b'"usage"', b'"error"', b'"finish_reason":"', b'"finish_reason": "', _DONE)
_TEXT = re.compile(rb'"(?:content|text|reasoning|reasoning_content)":\s?"((?:[^"\\]|\\.)*)"')
_HEAD_BYTES = 128
_ERROR = re.compile(rb'\{\s*"(?:error"\s*:\s*[^n\s]|object"\s*:\s*"error")')
_NEVER = b"\n"  # no line begins so
_USED = re.compile(rb'"usage"\s*:\s*\{')
# How the events of a protocol that names them end a stream.
_FINISHED = frozenset({b"response.completed", b"response.incomplete", b"message_stop"})
_FAILED = frozenset({b"error", b"response.failed"})


class StreamScanner:
    """Facts of one stream of server-sent events, whatever the pieces it comes in."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self.tokens = 0
        """Events that brought tokens."""
        self.usage = Usage()
        self.finish_reason: str | None = None
        self.error: str | None = None
        """What an error in the stream said."""
        self.done = False
        self._most = max_event_bytes
        # What stands before and after the text of an event that is known to be plain, and what
        # thus ends it and stands between two of its kind.
        self._opening = self._closing = self._end = self._joint = _NEVER
        self._quotes = 0  # in both of them
        self._tail = bytearray()  # of the event that is not whole yet
        self._oversized = False  # it is too large: only its first and last bytes are kept
        self._head = b""
        self._head_bytes = min(_HEAD_BYTES, max_event_bytes)

    @property
    def outcome(self) -> Outcome:
        """How the stream ended, once it has; an end without an ending is a cut."""
        if self.error is not None:
            return "error"
        return "finished" if self.done else "truncated"

    @property
    def between_events(self) -> bool:
        """Whether the last event is whole, so that another one can follow."""
        return not self._tail.strip(_BREAKS)

    def feed(self, chunk: bytes) -> int:
        """Take the next bytes of the stream; return how many events with tokens they completed."""
        before = self.tokens
        if self._tail:
            chunk = self._complete(chunk)
        if chunk:
            self._whole(chunk)
        return self.tokens - before

    def _complete(self, chunk: bytes) -> bytes:
        """End the event that had begun, if it does; return what is left for the next ones."""
        tail = self._tail
        seam = tail[1 - _END_BYTES :]
        found = _END.search(bytes(seam) + chunk)
        if found is None:
            tail += chunk
            self._bound()
            return b""
        end = max(0, found.end() - len(seam))
        if self._oversized:
            self._large(self._head)
        else:
            self._event(bytes(tail) + chunk[:end])
        self._tail = bytearray()
        self._oversized = False
        return chunk[end:]

    def _whole(self, chunk: bytes) -> None:
        """Take events from their beginning on."""
        if b"\r" in chunk:
            end = 0
            for found in _END.finditer(chunk):
                self._event(chunk[end : found.end()])
                end = found.end()
        else:
            end = chunk.rfind(b"\n\n") + 2
            if end == 1:
                end = 0
            else:
                self._events(chunk if end == len(chunk) else chunk[:end])
        if end < len(chunk):
            self._tail += chunk[end:]
            self._bound()

    def _events(self, region: bytes) -> None:
        """Take whole events whose lines end with LF."""
        if region.startswith(self._opening) and region.endswith(self._end):
            count = region.count(self._joint) + 1
            # Were there more than a text between its quotes, there would be more quotes.
            if region.count(b"\n") == 2 * count and region.count(b'"') == self._quotes * count:
                self.tokens += count
                return
        for event in region.split(b"\n\n"):
            self._event(event)

    def _bound(self) -> None:
        tail = self._tail
        if not self._oversized and len(tail) > self._most:
            event = tail.strip(_BREAKS)
            if len(event) > self._most:
                self._oversized = True
                self._head = bytes(event[: self._head_bytes])
        if self._oversized:
            del tail[: 1 - _END_BYTES]

    def _event(self, event: bytes) -> None:
        """Take one event, whole."""
        event = event.strip(_BREAKS)
        one_line = b"\n" not in event and b"\r" not in event
        alike = (
            one_line
            and event.startswith(self._opening)
            and event.endswith(self._closing)
            and event.count(b'"') == self._quotes
        )
        if alike:
            self.tokens += 1
            return
        if len(event) > self._most:
            self._large(event[: self._head_bytes])
            return
        name = b""
        data: bytes | None
        if one_line and event.startswith(b"data:"):
            data = event[5:].strip(b" ")
        else:
            name, data = _fields(event)
        if data is None:
            return
        if data == _DONE:
            self.done = True
        elif name:
            self._named(name, event, data)
        elif not self.tokens or any(mark in event for mark in _MARKS):
            self._read(event, data)
        else:
            self.tokens += 1
            if one_line:
                self._learn(event)

    def _large(self, head: bytes) -> None:
        """Take an event of which this is the beginning; what else it holds stays unknown."""
        name, data = _fields(head)
        if name in _FAILED or _ERROR.match(data or b""):
            self._fail(None)
        elif name in _FINISHED:
            self.done = True
        else:
            self.tokens += 1

    def _learn(self, event: bytes) -> None:
        """Take down how a plain event is written around its text: most others are, to a byte."""
        found = _TEXT.search(event)
        if found is not None:
            self._opening, self._closing = event[: found.start(1)], event[found.end(1) :]
            self._end = self._closing + b"\n\n"
            self._joint = self._end + self._opening
            self._quotes = self._opening.count(b'"') + self._closing.count(b'"')

    def _named(self, name: bytes, event: bytes, data: bytes) -> None:
        if name in _FINISHED:
            self.done = True
        if name in _FAILED:
            self._fail(_decoded(data))
        elif _USED.search(event):
            self.usage = self.usage.newer(usage_in(_decoded(data)))
        if name.endswith((b".delta", b"_delta")) and name != b"message_delta":
            self.tokens += 1

    def _read(self, event: bytes, data: bytes) -> None:
        value = _decoded(data)
        if not isinstance(value, dict):
            self.tokens += 1
            return
        if value.get("error") or value.get("object") == "error":
            self._fail(value)
            return
        if _USED.search(event):
            self.usage = self.usage.newer(usage_in(value))
        choices = value.get("choices")
        if not isinstance(choices, list):
            return
        brings = False
        for choice in choices:
            if isinstance(choice, dict):
                reason = choice.get("finish_reason")
                if isinstance(reason, str):
                    self.finish_reason = reason
                brings = brings or _brings_tokens(choice)
        self.tokens += brings

    def _fail(self, value: Any) -> None:
        """Keep what the first error of the stream says."""
        if self.error is not None:
            return
        holder = value
        for key in ("response", "error"):
            if isinstance(holder, dict) and isinstance(holder.get(key), dict | str):
                holder = holder[key]
        if isinstance(holder, dict):
            holder = holder.get("message")
        self.error = holder if isinstance(holder, str) else "the engine failed"


def _fields(event: bytes) -> tuple[bytes, bytes | None]:
    """Return an event's name, and its data with its lines joined; None where it has none."""
    name = b""
    data = []
    for line in _LINE.split(event):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value)
        elif field == b"event":
            name = value.strip(b" ")
    return name, b"\n".join(data).strip(b" ") if data else None


def _decoded(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def _brings_tokens(choice: dict[str, Any]) -> bool:
    """Whether a choice holds more than a role or a reason to stop."""
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    return any(value for key, value in delta.items() if key != "role")
