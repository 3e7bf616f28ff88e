"""What the token path needs to know of a served model; whoever serves models provides it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from modelops_servers.front.metrics import TextMetrics

if TYPE_CHECKING:  # a front without a text model never loads the client
    from modelops_servers.front.openai.upstream import Upstream


class TextModel(Protocol):
    """One text model, as a request finds it."""

    @property
    def name(self) -> str:
        """What the configuration calls it; the label of its metrics."""

    @property
    def engine_name(self) -> str:
        """What its engine calls it."""

    @property
    def context(self) -> int | None:
        """Most tokens of prompt and answer together; None where it is not known."""

    @property
    def tokenizes(self) -> bool:
        """Whether its engine counts a prompt's tokens at ``/tokenize``, as vLLM does."""

    @property
    def metrics(self) -> TextMetrics:
        """Where its requests are counted."""

    def admit(self) -> None:
        """Count a request in, or refuse it.

        Raises:
            NotReadyError: its engine is not ready.
            OverloadedError: as many as may wait do.
        """

    def leave(self) -> None:
        """Count an admitted request out."""

    async def take(self, tokens: int, deadline: float) -> None:
        """Wait until the engine may be given an admitted request of so many tokens.

        ``deadline`` is the request's own, on ``time.monotonic``'s clock.

        Raises:
            OverloadedError: it has waited for as long as it may.
            DeadlineError: its deadline passed before.
        """

    def give(self, tokens: int) -> None:
        """Let the next one have what ``take`` took."""

    def answered(self, began: float) -> None:
        """Take down that its engine has answered what it was given at ``began`` (monotonic)."""

    def engine(self) -> Upstream:
        """Return the engine to ask, the one with the least to do.

        Raises:
            NotReadyError: the last one has just gone.
        """


Find = Callable[[str], TextModel]
"""Finds a model by a name or an alias; raises ModelNotFoundError, NotReadyError or FieldError."""
