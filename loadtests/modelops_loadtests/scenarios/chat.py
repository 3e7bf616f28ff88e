"""Chats over the OpenAI protocol: a prompt in, a stream of reasoning, content or tool calls out."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Self

import orjson

from modelops_loadtests.scenarios.generation import GenerationReader, check_whole
from modelops_loadtests.scenarios.lengths import FREE, Lengths, PromptSource, options_of
from modelops_loadtests.scenarios.scenario import Answer, Get, Reply, Request, Settings

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}


@dataclass(frozen=True)
class ChatScenario:
    """Sends one user message a request, or the messages of the user's file; or a next turn."""

    prompts: PromptSource

    @classmethod
    def prepare(cls, settings: Settings, get: Get) -> Self:
        """Read the prompts, or find how to make them.

        Raises:
            InputError: a file is not right, or nothing counts tokens where their number is asked.
        """
        return cls(PromptSource.prepare(settings, get, chat=True))

    def request(self, rng: Random) -> Request:
        """Return a request that begins a conversation."""
        return self._request(rng, FREE)

    def sized(self, rng: Random, input_tokens: int | None, output_tokens: int | None) -> Request:
        """Return a request of these lengths; None: as the settings say."""
        return self._request(rng, (input_tokens, output_tokens))

    def next_turn(self, rng: Random, before: Request, text: str) -> Request:
        """Return the request after ``before``, which was answered with ``text``.

        It holds all that was said, and one more message as long as a first one; how many tokens
        that is in all is the server's to say.
        """
        said = (*before.messages, {"role": "assistant", "content": text})
        return self._request(rng, FREE, said)

    def _request(
        self, rng: Random, lengths: Lengths, said: tuple[dict[str, Any], ...] = ()
    ) -> Request:
        prompt = self.prompts.next(rng, lengths[0])
        messages = (*said, *(prompt.messages or ({"role": "user", "content": prompt.text},)))
        options, output = options_of(self.prompts, prompt, rng, lengths[1])
        return Request(
            "/v1/chat/completions",
            orjson.dumps({**options, "messages": messages}),
            HEADERS,
            1,
            "chat",
            stream=self.prompts.settings.stream,
            input_tokens=None if said else prompt.tokens,
            output_tokens=output,
            messages=messages,
        )

    def reader(self, request: Request) -> GenerationReader:  # noqa: ARG002
        """Return what reads a stream."""
        return GenerationReader(chat=True, count=self.prompts.count_generated)

    def check(self, request: Request, reply: Reply) -> Answer:  # noqa: ARG002
        """Check that something was generated."""
        return check_whole(reply, chat=True, count=self.prompts.count_generated)
