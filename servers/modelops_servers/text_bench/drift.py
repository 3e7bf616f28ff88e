"""How far greedy answers and log-probabilities are from those of another KV cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from modelops.errors import EngineError
from modelops.text_benchmark import Difference, Drift
from modelops_servers.keeper.client import EngineClient, UnansweredError
from modelops_servers.text_bench.workload import Tokens

_ANSWER_SECONDS = 600.0
_TOKEN = "token_id:"  # noqa: S105 - how vLLM writes a token by its number
_OK = 200


@dataclass(frozen=True)
class Greedy:
    """One answer: its tokens, each with its log-probability."""

    prompt: Tokens
    tokens: Tokens
    logprobs: tuple[float, ...]


@dataclass(frozen=True)
class Forced:
    """A given text, from its second token on: log-probabilities, and the likeliest tokens."""

    logprobs: tuple[float, ...]
    top: Tokens


@dataclass(frozen=True)
class Seen:
    """What one engine made of the prompts, and of ``texts``, which may be another's."""

    greedy: tuple[Greedy, ...]
    forced: tuple[Forced, ...]


async def look(
    client: EngineClient,
    model: str,
    prompts: Sequence[Tokens],
    output_tokens: int,
    baseline: Seen | None,
    on_end: Callable[[int], None] = lambda _count: None,
) -> Seen:
    """Ask one after the other: what else is in a batch changes the last bits.

    The texts that are forced are the ``baseline``'s, by default its own.

    Raises:
        EngineError: an answer is not one.
    """
    greedy = []
    for prompt in prompts:
        greedy.append(await _greedy(client, model, prompt, output_tokens))
        on_end(len(greedy))
    texts = [g.prompt + g.tokens for g in (greedy if baseline is None else baseline.greedy)]
    forced = [await _forced(client, model, text) for text in texts]
    return Seen(tuple(greedy), tuple(forced))


def compare(name: str, baseline: Seen, other: Seen) -> Drift:
    """Return how far ``other`` is from ``baseline``, which is called ``name``."""
    pairs = list(zip(baseline.greedy, other.greedy, strict=True))
    diverged = [_first_difference(a.tokens, b.tokens) for a, b in pairs]
    same = [len(a.tokens) if at is None else at for (a, _), at in zip(pairs, diverged, strict=True)]
    decoded = [
        abs(x - y)
        for (a, b), count in zip(pairs, same, strict=True)
        for x, y in zip(a.logprobs[:count], b.logprobs[:count], strict=True)
    ]
    texts = list(zip(baseline.forced, other.forced, strict=True))
    forced = [abs(x - y) for a, b in texts for x, y in zip(a.logprobs, b.logprobs, strict=True)]
    tops = [x == y for a, b in texts for x, y in zip(a.top, b.top, strict=True)]
    return Drift(
        against=name,
        prompts=len(pairs),
        tokens=sum(len(a.tokens) for a, _ in pairs),
        same_tokens=sum(same),
        diverged_at=tuple(diverged),
        decoded=_difference(decoded) if decoded else None,
        forced=_difference(forced),
        same_top=sum(tops) / len(tops),
    )


def _first_difference(one: Tokens, other: Tokens) -> int | None:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b), None)


def _difference(values: Sequence[float]) -> Difference:
    mean = math.fsum(values) / len(values)
    return Difference(positions=len(values), mean=round(mean, 6), max=round(max(values), 6))


async def _greedy(client: EngineClient, model: str, prompt: Tokens, output_tokens: int) -> Greedy:
    choice = await _choice(
        client,
        {
            "model": model,
            "prompt": prompt,
            "max_tokens": output_tokens,
            "min_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "logprobs": 0,
            "return_tokens_as_token_ids": True,
        },
    )
    try:
        said = choice["logprobs"]
        tokens = tuple(int(t.removeprefix(_TOKEN)) for t in said["tokens"])
        logprobs = tuple(float(p) for p in said["token_logprobs"])
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(f"the engine told no log-probabilities: {error}") from error
    if len(tokens) != output_tokens or len(logprobs) != output_tokens:
        raise EngineError(f"the engine answered {len(tokens)} tokens instead of {output_tokens}")
    return Greedy(prompt, tokens, logprobs)


async def _forced(client: EngineClient, model: str, text: Tokens) -> Forced:
    choice = await _choice(
        client,
        {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 1},
    )
    try:
        said = choice["prompt_logprobs"][1:]  # nothing comes before the first token
        given = [float(at[str(token)]["logprob"]) for at, token in zip(said, text[1:], strict=True)]
        top = [int(min(at, key=lambda token: at[token]["rank"])) for at in said]
    except (LookupError, TypeError, ValueError) as error:
        raise EngineError(f"the engine told no log-probabilities of a prompt: {error}") from error
    return Forced(tuple(given), tuple(top))


async def _choice(client: EngineClient, asked: dict[str, Any]) -> dict[str, Any]:
    try:
        status, body = await client.post("/v1/completions", asked, _ANSWER_SECONDS, "bench")
    except UnansweredError as error:
        raise EngineError(f"the engine did not answer: {error}") from error
    if status != _OK:
        raise EngineError(f"the engine answered with {status}: {body[:300]!r}")
    try:
        choice = orjson.loads(body)["choices"][0]
    except (ValueError, LookupError, TypeError) as error:
        raise EngineError(f"the engine's answer is none: {body[:300]!r}") from error
    if not isinstance(choice, dict):
        raise EngineError(f"the engine's answer is none: {body[:300]!r}")
    return choice
