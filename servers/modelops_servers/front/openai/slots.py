"""A text engine is given no more at once than it may have; what comes beyond waits in line."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _Waiting:
    tokens: int
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Slots:
    """At most so many requests, of at most so many tokens together; used on one event loop.

    First come, first served: one that asks for many tokens is not passed by those that ask for
    few, and one that asks for more than there can be has the engine to itself.
    """

    def __init__(self, most: int, most_tokens: int | None = None) -> None:
        self.most = most
        self.most_tokens = most_tokens
        self.taken = 0
        self.tokens = 0
        """Of all that are taken, together."""
        self._line: dict[_Waiting, None] = {}  # in the order of their coming

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    def resize(self, most: int, most_tokens: int | None) -> None:
        """Change what there may be at once; what is more than that is let finish."""
        self.most, self.most_tokens = most, most_tokens
        self._grant()

    async def take(self, tokens: int, seconds: float) -> None:
        """Take a slot for a request that may come to so many tokens; ``give`` it back once.

        Raises:
            TimeoutError: none came free within ``seconds``.
        """
        if not self._line and self._fits(tokens):
            self._take(tokens)
            return
        mine = _Waiting(tokens)
        self._line[mine] = None
        try:
            async with asyncio.timeout(seconds):
                await mine.granted
        except BaseException:
            if mine.granted.done() and not mine.granted.cancelled():
                self.give(tokens)  # it came in the moment of leaving
            else:
                self._line.pop(mine, None)
                self._grant()  # it may have been all that the next one waited for
            raise

    def give(self, tokens: int) -> None:
        """Give back a slot that was taken for so many tokens."""
        self.taken -= 1
        self.tokens -= tokens
        self._grant()

    def _fits(self, tokens: int) -> bool:
        if self.taken >= self.most:
            return False
        return (
            not self.taken or self.most_tokens is None or self.tokens + tokens <= self.most_tokens
        )

    def _take(self, tokens: int) -> None:
        self.taken += 1
        self.tokens += tokens

    def _grant(self) -> None:
        while self._line:
            first = next(iter(self._line))
            if not first.granted.done():  # or who waited is just leaving
                if not self._fits(first.tokens):
                    break
                self._take(first.tokens)
                first.granted.set_result(None)
            del self._line[first]
