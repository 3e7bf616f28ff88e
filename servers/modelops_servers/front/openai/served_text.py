"""A served version of a text model, over the engines that this front sends its requests to."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from modelops.config import ModelConfig
from modelops.errors import DeadlineError, ModelopsError
from modelops_servers.front.metrics import Metrics, TextMetrics
from modelops_servers.front.openai.settings import UpstreamSettings
from modelops_servers.front.openai.slots import Slots
from modelops_servers.front.overload import QueueFullError
from modelops_servers.front.served import Served

if TYPE_CHECKING:  # a front without a text model never loads the client
    from modelops_servers.front.openai.upstream import Upstream


class TextReplica:
    """One text engine; connections are made as they are needed, so it is always reached."""

    def __init__(self, id: str, upstream: Upstream) -> None:
        self.id = id
        self.upstream = upstream
        self._closing: asyncio.Task[None] | None = None

    @staticmethod
    def of(id: str, config: ModelConfig, socket: str) -> TextReplica:
        """Return the engine at ``socket``, or the one elsewhere that ``config`` names.

        Raises:
            MissingEnvironmentError: the variable that is to hold its key is not set.
        """
        from modelops_servers.front.openai.upstream import Upstream

        settings = UpstreamSettings(**dict(config.timeouts))
        if config.url is None:
            return TextReplica(id, Upstream(socket=Path(socket), settings=settings))
        from modelops_servers.keeper.remote_key import key_of

        return TextReplica(id, Upstream(config.url, key=key_of(config), settings=settings))

    @property
    def in_flight(self) -> int:
        """Answers that have begun and not ended."""
        return self.upstream.in_flight

    def abandon(self, error: ModelopsError) -> None:
        """End every open answer with ``error``."""
        self.upstream.abandon(error)

    def close(self) -> None:
        """Close every connection; what is still open fails."""
        self._closing = asyncio.get_running_loop().create_task(self.upstream.close())


class TextVersion(Served[TextReplica]):
    """Takes requests for one text model; a ``TextModel``."""

    def __init__(
        self, config: ModelConfig, number: str, path: Path | None, metrics: Metrics, fronts: int
    ) -> None:
        self.metrics: TextMetrics = metrics.text(config.name)
        self._queued = metrics.of(config.name, number).queued
        self._slots = Slots(1)
        super().__init__(config, number, path, metrics.of(config.name, number), fronts)

    @property
    def name(self) -> str:
        """What the configuration calls it."""
        return self.config.name

    @property
    def engine_name(self) -> str:
        """What its engine calls it."""
        return str(self.describe().get("served_model_name") or self.config.name)

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and answer together; None where it is not known."""
        most = self.describe().get("max_model_len")
        return most if isinstance(most, int) and most > 0 else None

    @property
    def tokenizes(self) -> bool:
        """Whether its engine counts a prompt's tokens at ``/tokenize``."""
        return self.config.engine == "vllm"

    @property
    def at_once(self) -> int:
        """As many as are admitted: how many it works on together, an engine decides itself."""
        return sys.maxsize

    def resize(self) -> None:
        """Set how many requests are admitted, and how many of them the engines are given."""
        super().resize()
        most = self.config.admission.max_tokens_in_flight
        self._slots.resize(
            math.ceil(self.config.max_in_flight / self._fronts),
            None if most is None else math.ceil(most / self._fronts),
        )

    async def take(self, tokens: int, deadline: float) -> None:
        """Wait until the engines may be given an admitted request of so many tokens.

        ``deadline`` is on ``time.monotonic``'s clock.

        Raises:
            QueueFullError: it has waited for ``queue_seconds``.
            DeadlineError: its deadline passed before.
        """
        began = time.monotonic()
        seconds = min(self.config.admission.queue_seconds, deadline - began)
        try:
            await self._slots.take(tokens, seconds)
        except TimeoutError as error:
            waited = time.monotonic() - began
            self._queued(waited)
            if time.monotonic() >= deadline:
                raise DeadlineError(f"it waited {waited:.3g} s for {self.name!r}") from error
            self._rejections.rejected("queue_seconds")
            raise QueueFullError(
                f"it waited {waited:.3g} s for {self.name!r}, which has {self._slots.taken} "
                f"requests of up to {self._slots.tokens} tokens together",
                retry_after=self.retry_after,
            ) from error
        self._queued(time.monotonic() - began)

    def give(self, tokens: int) -> None:
        """Let the next one have what ``take`` took."""
        self._slots.give(tokens)

    def engine(self) -> Upstream:
        """Return the engine with the least to do; see ``Served.choose``."""
        return self.choose().upstream
