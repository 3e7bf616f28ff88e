"""Conversations of several turns: each is due after the reply to the one before, and a pause."""

from __future__ import annotations

from random import Random
from typing import Protocol, cast

from modelops_loadtests.client.request import Request
from modelops_loadtests.scenarios.scenario import Scenario
from modelops_loadtests.sending import Sent


class SizedScenario(Scenario, Protocol):
    """A scenario whose requests can be given their lengths one by one, as a trace does."""

    def sized(self, rng: Random, input_tokens: int | None, output_tokens: int | None) -> Request:
        """Return a request of these lengths; None: as without a trace."""


class TalkingScenario(Scenario, Protocol):
    """A scenario whose requests can follow an answer."""

    def next_turn(self, rng: Random, before: Request, text: str) -> Request:
        """Return the request after ``before``, which was answered with ``text``."""


class Conversation:
    """The requests of one user or arrival, made one after another from ``rng``.

    The history grows with what the model really answered, so that a server's prefix cache meets
    what it would meet from people. A turn that fails ends it: there is nothing to go on from.
    """

    def __init__(
        self,
        scenario: Scenario,
        rng: Random,
        *,
        turns: int = 1,
        number: int = 0,
        lengths: tuple[int | None, int | None] = (None, None),
    ) -> None:
        self._scenario, self._rng, self._turns, self._lengths = scenario, rng, turns, lengths
        self.turn = 0
        """The place of the request that was made last, from 0."""
        self.number = number

    def first(self) -> Request:
        """Return the first request."""
        if self._lengths != (None, None):
            return cast(SizedScenario, self._scenario).sized(self._rng, *self._lengths)
        return self._scenario.request(self._rng)

    def after(self, sent: Sent) -> Request | None:
        """Return the request that follows what came of one; None where it is over."""
        if sent.sample.outcome != "ok" or self.turn + 1 >= self._turns:
            return None
        self.turn += 1
        scenario = cast(TalkingScenario, self._scenario)
        return scenario.next_turn(self._rng, sent.request, sent.answer.text)

    @property
    def labels(self) -> dict[str, int]:
        """Return what samples say of it: nothing where there is but one turn."""
        return {} if self._turns == 1 else {"conversation": self.number, "turn": self.turn}
