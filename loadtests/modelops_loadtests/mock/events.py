"""The server-sent events of one stream, made from pieces that are formatted once."""

from __future__ import annotations

import orjson

from modelops_loadtests.mock.asked import Asked
from modelops_loadtests.mock.script import Script

DONE = b"data: [DONE]\n\n"
ERROR = (
    b'data: {"error":{"message":"the script failed here","type":"internal_error","code":500}}\n\n'
)
ROLE, REASONING, CONTENT = "role", "reasoning", "content"


def words(first: int, number: int) -> str:
    """Return the text of ``number`` tokens from the token ``first``, counted from 0."""
    text = " ".join(f"w{n}" for n in range(first, first + number))
    return f" {text}" if first else text


class Events:
    """Formats the events of one stream; each is a ``bytes`` that ends with an empty line."""

    def __init__(self, name: str, asked: Asked, script: Script) -> None:
        self._asked = asked
        self._script = script
        self._each_usage = script.continuous_usage or (
            asked.continuous_usage and script.usage != "never"
        )
        kind = "chat.completion.chunk" if asked.chat else "text_completion"
        model = orjson.dumps(asked.model).decode()
        self._head = (
            f'data: {{"id":"{name}","object":"{kind}","created":1700000000,"model":{model},'
        )

    def role(self) -> bytes:
        """Return the chunk that begins a chat: it has a role and an empty text."""
        return self._event('{"role":"assistant","content":""}', "null", 0)

    def text(self, kind: str, first: int, number: int) -> bytes:
        """Return the chunk with ``number`` tokens from the token ``first``."""
        text = words(first, number)
        if not self._asked.chat:
            return self._event(f'"{text}"', "null", first + number)
        return self._event(f'{{"{_FIELDS[kind]}":"{text}"}}', "null", first + number)

    def finish(self, tokens: int) -> bytes:
        """Return the chunk without a text that says why the stream ends."""
        why = '"length"' if tokens >= self._asked.tokens else '"stop"'
        return self._event("{}" if self._asked.chat else '""', why, tokens)

    def usage(self, tokens: int) -> bytes:
        """Return the chunk without choices that tells the usage; nothing where none is told."""
        told = self._script.usage
        if told == "never" or (told == "asked" and not self._asked.usage):
            return b""
        return f'{self._head}"choices":[],{self._usage(tokens)}}}\n\n'.encode()

    def _event(self, delta: str, finish: str, tokens: int) -> bytes:
        field = "delta" if self._asked.chat else "text"
        usage = f",{self._usage(tokens)}" if self._each_usage else ""
        return (
            f'{self._head}"choices":[{{"index":0,"{field}":{delta},"finish_reason":{finish}}}]'
            f"{usage}}}\n\n"
        ).encode()

    def _usage(self, tokens: int) -> str:
        return f'"usage":{orjson.dumps(usage_of(self._asked, self._script, tokens)).decode()}'


def usage_of(asked: Asked, script: Script, tokens: int) -> dict[str, int]:
    """Return the usage that the script tells of a reply with so many tokens."""
    prompt = round(asked.prompt_tokens * script.input_usage_factor)
    completion = round(tokens * script.output_usage_factor)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


_FIELDS = {REASONING: "reasoning_content", CONTENT: "content"}
