"""One streamed completion, timed as its pieces arrive."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson

from modelops_servers.text_bench.workload import Tokens

_PATH = "http://engine/v1/completions"
_SILENT_SECONDS = 600.0
_LONGEST_EVENT = 2**20
_SHOWN = 200
_OK = 200


class RequestFailedError(Exception):
    """A request that has no whole, right answer; it counts for nothing."""


@dataclass(frozen=True)
class Answer:
    """Times in seconds on one monotonic clock; ``arrivals`` are those of chunks with tokens.

    ``first_tokens`` is how many tokens the first of these held.
    """

    sent: float
    ended: float
    arrivals: tuple[float, ...]
    prompt_tokens: int
    tokens: int
    first_tokens: int

    @property
    def ttft(self) -> float:
        """From just before the request was sent to its first token."""
        return self.arrivals[0] - self.sent

    @property
    def tpot(self) -> float | None:
        """Time per token after the first chunk; None where there is none."""
        later = self.tokens - self.first_tokens
        return (self.arrivals[-1] - self.arrivals[0]) / later if later > 0 else None

    @property
    def gaps(self) -> list[float]:
        """The times between chunks."""
        return [b - a for a, b in zip(self.arrivals, self.arrivals[1:], strict=False)]


async def ask(
    session: aiohttp.ClientSession, model: str, prompt: Tokens, output_tokens: int
) -> Answer:
    """Ask for exactly ``output_tokens`` greedy tokens.

    Raises:
        RequestFailedError: refused, cut, an error within the stream, or another number of tokens.
    """
    body = {
        "model": model,
        "prompt": prompt,
        "max_tokens": output_tokens,
        "min_tokens": output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "seed": 0,
        "stream": True,
        # Counted in every chunk: one may hold several tokens, or one that is no text yet.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    data = orjson.dumps(body)
    timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_SECONDS)
    sent = time.perf_counter()
    try:
        async with session.post(
            _PATH, data=data, headers={"Content-Type": "application/json"}, timeout=timeout
        ) as reply:
            if reply.status != _OK:
                text = (await reply.read())[:_SHOWN].decode("utf-8", "replace")
                raise RequestFailedError(f"status {reply.status}: {text}")
            answer = await _read(reply, sent)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise RequestFailedError(f"cut: {str(error) or type(error).__name__}") from error
    if answer.tokens != output_tokens:
        raise RequestFailedError(f"{answer.tokens} tokens instead of {output_tokens}")
    return answer


async def _read(reply: aiohttp.ClientResponse, sent: float) -> Answer:
    arrivals: list[float] = []
    tokens = prompt_tokens = first_tokens = 0
    done = False
    async for at, event in _events(reply):
        if event == b"[DONE]":
            done = True
            continue
        said = _parsed(event)
        usage = said.get("usage") or {}
        counted = usage.get("completion_tokens", tokens)
        if counted > tokens and said.get("choices"):
            if not arrivals:
                first_tokens = counted
            arrivals.append(at)
        tokens = max(tokens, counted)
        prompt_tokens = usage.get("prompt_tokens", prompt_tokens)
    if not done:
        raise RequestFailedError("cut: the stream ended without its ending")
    if not arrivals:
        raise RequestFailedError("no token, or none that was counted")
    return Answer(sent, time.perf_counter(), tuple(arrivals), prompt_tokens, tokens, first_tokens)


def _parsed(event: bytes) -> dict[str, Any]:
    try:
        said = orjson.loads(event)
    except ValueError as error:
        raise RequestFailedError(f"no JSON in the stream: {event[:_SHOWN]!r}") from error
    if not isinstance(said, dict):
        raise RequestFailedError(f"no answer in the stream: {event[:_SHOWN]!r}")
    if "error" in said:
        # With status 200, and [DONE] behind it.
        raise RequestFailedError(f"an error within the stream: {str(said['error'])[:_SHOWN]}")
    return said


async def _events(reply: aiohttp.ClientResponse) -> AsyncIterator[tuple[float, bytes]]:
    """Yield the data of each event, and when its last byte arrived."""
    rest = b""
    async for piece in reply.content.iter_any():
        at = time.perf_counter()
        *events, rest = (rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        for event in events:
            for line in event.split(b"\n"):
                if line.startswith(b"data:"):
                    yield at, line[5:].strip()
        if len(rest) > _LONGEST_EVENT:
            raise RequestFailedError("an event without end")
