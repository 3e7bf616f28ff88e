"""How long to wait before the next restart."""

from __future__ import annotations

import time

CAP_SECONDS = 30.0
_FIRST_SECONDS = 0.5
_FORGIVEN_SECONDS = 60.0


class Backoff:
    """At once after a long good run, then half a second, doubled to a cap."""

    def __init__(self, forgiven_seconds: float = _FORGIVEN_SECONDS) -> None:
        """After a good run of ``forgiven_seconds`` what was before is forgotten."""
        self._forgiven_seconds = forgiven_seconds
        self._failures = 0
        self._well_since: float | None = None

    def well(self) -> None:
        """The process does its work from now on; what it took to load says nothing good of it."""
        self._well_since = time.monotonic()

    def next(self) -> float:
        """Return the seconds to wait now that it has ended."""
        since, self._well_since = self._well_since, None
        if since is not None and time.monotonic() - since > self._forgiven_seconds:
            self._failures = 0
        self._failures += 1
        if self._failures == 1:
            return 0.0
        return min(CAP_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._failures - 2, 16))
