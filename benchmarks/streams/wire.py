"""The bytes of a chat stream: what is asked for, what is sent, and whether all of it came."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

MODEL = "chat"
DONE = b"data: [DONE]\n\n"
_MOST_TOKENS = 10_000
_EVENT = (
    '{"id":"chatcmpl-8b5c2f4e9d3a4c1f","object":"chat.completion.chunk",'
    '"created":1764500000,"model":"chat","choices":[{"index":0,"delta":{"content":" t%06d"},'
    '"logprobs":null,"finish_reason":%s}]}'
)
_SCRIPT = re.compile(rb"(\d+) tokens, (\d+) at once, first after (\d+) us, then every (\d+) us")
_TOKEN = re.compile(rb'"content":\s?" t(\d{6})"')


@dataclass(frozen=True)
class Script:
    """What a scripted upstream is to do; it is told so in the prompt, which all pass on."""

    tokens: int
    burst: int = 1
    """Tokens in one write, each in an HTTP chunk of its own."""
    first_us: int = 0
    """From the request to the first write, in microseconds."""
    every_us: int = 0
    """Between two writes; 0 is as fast as they are read."""

    @property
    def prompt(self) -> str:
        """The script in words."""
        return (
            f"{self.tokens} tokens, {self.burst} at once, first after {self.first_us} us, "
            f"then every {self.every_us} us"
        )

    @staticmethod
    def of(request: bytes) -> Script | None:
        """Return the script that a request's prompt holds."""
        found = _SCRIPT.search(request)
        return Script(*map(int, found.groups())) if found else None

    @property
    def body(self) -> bytes:
        """A chat request for it."""
        return chat(self.prompt, max_tokens=self.tokens)

    @property
    def answer(self) -> bytes:
        """All events, byte for byte."""
        return b"".join(event(n, last=n == self.tokens - 1) for n in range(self.tokens)) + DONE


def chat(prompt: str, **fields: object) -> bytes:
    """A streamed chat request."""
    messages = [{"role": "user", "content": prompt}]
    return json.dumps({"model": MODEL, "stream": True, "messages": messages, **fields}).encode()


def request(body: bytes, *, keep: bool = False) -> bytes:
    """Return the whole HTTP request; its connection is used once, unless it is to be kept."""
    once = "" if keep else "Connection: close\r\n"
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n{once}"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def event(number: int, *, last: bool = False) -> bytes:
    """One token; the last one says why it is the last."""
    data = _EVENT % (number, '"stop"' if last else "null")
    return f"data: {data}\n\n".encode()


def framed(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def unframed(answer: bytes) -> bytes:
    """Return the body of a whole answer in chunks.

    Raises:
        ValueError: it is not whole.
    """
    at = answer.index(b"\r\n\r\n") + 4
    parts = []
    while True:
        end = answer.index(b"\r\n", at)
        size = int(answer[at:end], 16)
        if size == 0:
            if answer[end:] != b"\r\n\r\n":
                raise ValueError("something follows the last chunk")
            return b"".join(parts)
        parts.append(answer[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


def tokens_in(body: bytes) -> list[int]:
    """Return the numbers of the tokens in a body, however its JSON is written."""
    return [int(number) for number in _TOKEN.findall(body)]
