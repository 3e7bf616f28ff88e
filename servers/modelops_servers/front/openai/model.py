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

    def admit(self, tokens: int) -> None:
        """Count a request in that may make so many tokens, 0 where it has not said; or refuse it.

        Raises:
            NotReadyError: its engine is not ready.
            OverloadedError: as many as may wait do.
        """

    def leave(self, tokens: int) -> None:
        """Count an admitted request out."""

    def engine(self) -> Upstream:
        """Return the engine to ask, the one with the least to do.

        Raises:
            NotReadyError: the last one has just gone.
        """


Find = Callable[[str], TextModel]
"""Finds a model by a name or an alias; raises ModelNotFoundError, NotReadyError or FieldError."""
