"""Completions over the OpenAI protocol: a prompt in, a stream of text out."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self

import orjson

from modelops.errors import InputError
from modelops_loadtests.scenarios.chat import HEADERS
from modelops_loadtests.scenarios.generation import GenerationReader, check_whole
from modelops_loadtests.scenarios.lengths import PromptSource, options_of
from modelops_loadtests.scenarios.scenario import Answer, Get, Reply, Request, Settings


@dataclass(frozen=True)
class CompletionScenario:
    """Sends one prompt a request."""

    prompts: PromptSource

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:
        """Read the prompts, or find how to make them.

        Raises:
            InputError: a file is not right or has messages, or nothing counts tokens where their
                number is asked.
        """
        source = PromptSource.prepare(settings, get, chat=False)
        if any(prompt.messages for prompt in source.read):
            raise InputError(
                f"{settings.data} has messages, and a completion takes a text",
                hint='use --scenario chat, or write {"prompt": "…"}',
            )
        return cls(source)

    def request(self, rng: Random) -> Request:
        """Return the next request."""
        return self.sized(rng, None, None)

    def sized(self, rng: Random, input_tokens: int | None, output_tokens: int | None) -> Request:
        """Return a request of these lengths; None: as the settings say."""
        prompt = self.prompts.next(rng, input_tokens)
        options, output = options_of(self.prompts, prompt, rng, output_tokens)
        return Request(
            "/v1/completions",
            orjson.dumps({**options, "prompt": prompt.text}),
            HEADERS,
            1,
            "completion",
            stream=self.prompts.settings.stream,
            input_tokens=prompt.tokens,
            output_tokens=output,
        )

    def reader(self, request: Request) -> GenerationReader:  # noqa: ARG002
        """Return what reads a stream."""
        return GenerationReader(chat=False, count=self.prompts.count_generated)

    def check(self, request: Request, reply: Reply) -> Answer:  # noqa: ARG002
        """Check that something was generated."""
        return check_whole(reply, chat=False, count=self.prompts.count_generated)
