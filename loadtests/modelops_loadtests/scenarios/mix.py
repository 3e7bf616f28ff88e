"""Several scenarios at once, each as often as its weight says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from random import Random
from typing import Any

from modelops import registry
from modelops_loadtests.scenarios.scenario import (
    Answer,
    Get,
    Reply,
    Request,
    Scenario,
    Settings,
    StreamReader,
)


@dataclass(frozen=True)
class MixScenario:
    """Draws a scenario for each request; the request bears its name, by which replies find it."""

    parts: Mapping[str, Scenario]
    weights: tuple[float, ...]
    """Summed up, in the order of ``parts``."""

    def request(self, rng: Random) -> Request:
        """Return the next request."""
        name = self._draw(rng)
        return replace(self.parts[name].request(rng), name=name)

    def sized(self, rng: Random, input_tokens: int | None, output_tokens: int | None) -> Request:
        """Return a request of these lengths, where it falls to a scenario that has lengths."""
        name = self._draw(rng)
        part: Any = self.parts[name]
        has_lengths = hasattr(part, "sized")
        made: Request = (
            part.sized(rng, input_tokens, output_tokens) if has_lengths else part.request(rng)
        )
        return replace(made, name=name)

    def _draw(self, rng: Random) -> str:
        return rng.choices(tuple(self.parts), cum_weights=self.weights)[0]

    def reader(self, request: Request) -> StreamReader:
        """Return what reads this stream."""
        reader: StreamReader = self.parts[request.name].reader(request)  # type: ignore[attr-defined]
        return reader

    def check(self, request: Request, reply: Reply) -> Answer:
        """Check by the scenario that the request is of."""
        return self.parts[request.name].check(request, reply)


def prepare_mix(
    weights: Mapping[str, float], settings: Callable[[str], Settings], get: Get
) -> Scenario:
    """Return the scenarios of ``weights`` as one; ``settings`` gives each one's by its name.

    Raises:
        ModelopsError: a scenario is not known, or cannot be prepared.
    """
    parts: dict[str, Scenario] = {}
    for name in weights:
        scenario: Scenario = registry.resolve("scenarios", name).prepare(settings(name), get)
        parts[name] = scenario
    if len(parts) == 1:
        return next(iter(parts.values()))
    # A mix is made of scenarios, and is not prepared by itself.
    return MixScenario(parts, tuple(accumulate(weights.values())))  # type: ignore[return-value]
