"""From a script and a request to what is written when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from modelops_loadtests.mock.asked import Asked
from modelops_loadtests.mock.events import CONTENT, DONE, ERROR, REASONING, Events
from modelops_loadtests.mock.script import STREAM_FAULTS, Script, Times

END = "end"
"""The stream ends as its framing has it."""


@dataclass(frozen=True, slots=True)
class Step:
    """Events written together, ``at`` seconds from when the service began.

    ``tokens`` has the number of tokens of each event that carries text. After it comes ``then``:
    nothing, the end, or a fault.
    """

    at: float
    events: tuple[bytes, ...]
    tokens: tuple[int, ...] = ()
    then: str = ""


def tokens_of(script: Script, asked: Asked) -> int:
    """Return how many tokens the reply has."""
    return min(script.tokens or asked.tokens, asked.tokens)


def steps(script: Script, asked: Asked, times: Times, fault: str, name: str) -> Iterator[Step]:
    """Yield the steps of one stream, each made when the one before was written.

    The first comes with the reply's headers.
    """
    events = Events(name, asked, script)
    fault = fault if fault in STREAM_FAULTS else ""
    role = asked.chat and script.role_chunk
    yield Step(times.headers, (events.role(),) if role else ())
    whole = tokens_of(script, asked)
    last = min(script.fault_after, whole) if fault else whole
    at, written = times.ttft, 0
    gathered: list[bytes] = []
    counts: list[int] = []
    while written < last:
        thinking = asked.chat and written < script.reasoning_tokens
        most = script.reasoning_tokens if thinking else last
        number = min(script.tokens_per_chunk, last - written, most - written)
        if not thinking and written == (script.reasoning_tokens if asked.chat else 0):
            at = max(at, times.answer)
        gathered.append(events.text(REASONING if thinking else CONTENT, written, number))
        counts.append(number)
        written += number
        if len(gathered) == script.events_per_write or written == last:
            yield Step(at, tuple(gathered), tuple(counts))
            gathered, counts = [], []
        at += times.interval
    at = max(times.ttft, at - times.interval)
    if fault:
        yield Step(at, (ERROR, DONE) if fault == "error" else (), then=_AFTER.get(fault, fault))
    else:
        ending = (events.finish(written), events.usage(written), DONE)
        yield Step(at, tuple(filter(None, ending)), then=END)


_AFTER = {"error": END, "unfinished": END}
