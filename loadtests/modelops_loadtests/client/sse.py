"""Server-sent events out of bytes, however they were cut (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(Exception):
    """An event that does not end."""


class EventParser:
    """Takes bytes, gives each event as soon as it is complete: its type, and its data.

    Lines end with LF, CRLF or CR; comments and unknown fields are passed over; several lines of
    data are one, with LF between. What is not ended by an empty line is no event.
    """

    __slots__ = ("_after_cr", "_begun", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._after_cr = False

    def feed(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Return the events that these bytes complete, as (type, data); the type is often empty.

        Raises:
            EventTooLargeError: an event is over ``MAX_EVENT_BYTES``.
        """
        # Nearly always: one whole event of one line, and nothing before it.
        if (
            self._begun
            and not self._rest
            and not self._after_cr
            and data.startswith(b"data: ")
            and data.find(b"\n") == len(data) - 2
            and data.endswith(b"\n\n")
            and b"\r" not in data
        ):
            return [(b"", data[6:-2])]
        if self._after_cr and data:
            # The line ended with its CR; this LF belongs to it.
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._rest:
            data = self._rest + data
        if not self._begun:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._rest = data
                return []
            self._begun = True
            data = data.removeprefix(_BOM)
        *blocks, rest = data.split(b"\n\n")
        if len(rest) > MAX_EVENT_BYTES:
            raise EventTooLargeError(f"an event of more than {MAX_EVENT_BYTES} bytes")
        self._rest = rest
        events = []
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                events.append((b"", block[6:]))
            elif (event := _read(block)) is not None:
                events.append(event)
        return events


def _read(block: bytes) -> tuple[bytes, bytes] | None:
    kind, lines = b"", []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
        elif name == b"event":
            kind = value.removeprefix(b" ")
    return (kind, b"\n".join(lines)) if lines else None
