"""What a model that has too much to do says."""

from __future__ import annotations

from modelops.errors import OverloadedError


class QueueFullError(OverloadedError):
    """The model's queue is full; ``retry_after`` is the expected wait in seconds."""

    def __init__(self, message: str, *, retry_after: int) -> None:
        super().__init__(message, hint="send fewer requests at once, or come back later")
        self.retry_after = retry_after
