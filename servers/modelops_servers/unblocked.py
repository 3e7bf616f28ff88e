"""A text stream that nobody waits for: what its reader does not take in time is dropped."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator
from typing import TextIO

HELD_BYTES = 2**20
"""What waits for the reader; more is dropped, and the number of lines told once it reads again."""

_CLOSE_SECONDS = 1.0


class Unblocked(io.TextIOBase):
    """Writes to the descriptor of ``stream`` from a thread of its own.

    A full pipe, or a terminal that was stopped, then holds up that thread and nobody else. Lines
    stay whole.
    """

    def __init__(self, stream: TextIO, held_bytes: int = HELD_BYTES) -> None:
        self._stream = stream
        self._fd = stream.fileno()
        self._most = held_bytes
        self._begun = ""
        self._parts: deque[bytes] = deque()
        self._held = 0
        self._dropped = 0
        self._ended = False
        # Its lock can be taken again by its holder: a finalizer that complains may run in there.
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="stderr", daemon=True)
        self._thread.start()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """As the stream has it."""
        return self._stream.encoding

    def writable(self) -> bool:
        """Yes."""
        return True

    def isatty(self) -> bool:
        """As the stream says."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._fd

    def write(self, text: str) -> int:
        """Take ``text``; it is passed on once its line is whole, or at ``flush``."""
        with self._changed:
            whole, newline, self._begun = (self._begun + text).rpartition("\n")
            self._take(whole + newline)
        return len(text)

    def flush(self) -> None:
        """Pass on a line that is not whole; this waits for nobody either."""
        with self._changed:
            begun, self._begun = self._begun, ""
            self._take(begun)

    def finish(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Give the reader up to ``seconds`` for what is left; nothing is taken any more."""
        self.flush()
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(seconds)

    def _take(self, text: str) -> None:
        if not text or self._ended:
            return
        part = text.encode(self.encoding, "backslashreplace")
        if self._held + len(part) > self._most:
            self._dropped += max(1, text.count("\n"))
            return
        self._own_up()
        self._append(part)

    def _own_up(self) -> None:
        if self._dropped:
            said = f"{self._dropped} lines of the log were dropped: nobody read them in time"
            self._dropped = 0
            self._append(json.dumps({"event": said, "level": "warning"}).encode() + b"\n")

    def _append(self, part: bytes) -> None:
        self._parts.append(part)
        self._held += len(part)
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._parts:
                    self._own_up()
                while not self._parts and not self._ended:
                    self._changed.wait()
                if not self._parts:
                    return
                part = self._parts.popleft()
            try:
                self._put(part)
            except OSError:
                # Whoever read it is gone for good.
                with self._changed:
                    self._ended = True
                    self._parts.clear()
                return
            with self._changed:
                self._held -= len(part)

    def _put(self, part: bytes) -> None:
        left = memoryview(part)
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                # Whoever shares the pipe may have made it so.
                poll = select.poll()
                poll.register(self._fd, select.POLLOUT)
                poll.poll()


@contextlib.contextmanager
def unblocked_stderr() -> Iterator[None]:
    """Let nothing that this process says on stderr hold it up, until the context ends."""
    try:
        stream = Unblocked(sys.stderr)
    except (AttributeError, OSError):
        # There is none, or none that could block.
        yield
        return
    try:
        with contextlib.redirect_stderr(stream):
            yield
    finally:
        stream.finish()
