"""The scanner sees the same in a stream, whatever the pieces it comes in."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from modelops_servers.front.openai.scanner import StreamScanner
from modelops_servers.front.openai.usage import Usage

SMALL = 160  # the bound on an event in these tests


def chunk(content: Any = "hi", **more: Any) -> str:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": None}
    return json.dumps(
        {"id": "c-1", "choices": [choice], **more}, separators=(",", ":"), ensure_ascii=False
    )


ROLE = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
STOP = '{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":7,"total_tokens":10,"completion_tokens":3}}'
ERROR = '{"error":{"message":"it broke","type":"InternalServerError","code":500}}'
DONE = "[DONE]"


def stream(*data: str, end: str = "\n") -> bytes:
    return "".join(f"data: {d}{end}{end}" for d in data).encode()


def facts(scanner: StreamScanner) -> tuple[Any, ...]:
    return (
        scanner.tokens, scanner.usage, scanner.finish_reason, scanner.error, scanner.done,
        scanner.outcome, scanner.between_events,
    )  # fmt: skip


def scan(pieces: list[bytes], most: int = SMALL) -> tuple[Any, ...]:
    scanner = StreamScanner(most)
    counted = sum(scanner.feed(piece) for piece in pieces)
    assert counted == scanner.tokens
    return facts(scanner)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges) if a < b]


_payloads = st.one_of(
    st.sampled_from([ROLE, STOP, USAGE, ERROR, DONE, chunk(), chunk("日本語🙂"), "", "nonsense"]),
    st.text('ab日\\" {}[]:,', max_size=12).map(chunk),
    st.sampled_from(["usage", "error", DONE, "x" * SMALL]).map(chunk),
    st.builds(lambda u: chunk(usage=u), st.sampled_from([None, {}, {"prompt_tokens": 4}])),
)
_named = st.sampled_from([
    ("response.output_text.delta", '{"delta":"a"}'),
    ("response.completed", '{"response":{"usage":{"input_tokens":5,"output_tokens":2}}}'),
    ("response.failed", '{"response":{"error":{"message":"no"}}}'),
    ("message_start", '{"message":{"usage":{"input_tokens":9}}}'),
    ("message_delta", '{"usage":{"output_tokens":4}}'),
    ("message_stop", "{}"),
    ("ping", "{}"),
    ("error", '{"error":{"message":"bad"}}'),
])  # fmt: skip


@st.composite
def _streams(draw: st.DrawFn) -> bytes:
    """Well-formed for the most part: events of any line endings, comments, odds and ends."""
    parts = []
    ends = draw(st.sampled_from([["\n"], ["\r\n"], ["\r"], ["\n", "\r\n", "\r"]]))
    for _ in range(draw(st.integers(0, 8))):
        end, blank = draw(st.sampled_from(ends)), draw(st.sampled_from(ends))
        match draw(st.integers(0, 7)):
            case 0:
                parts.append(f": comment{end}{blank}")
            case 1:
                name, data = draw(_named)
                parts.append(f"event: {name}{end}data: {data}{end}{blank}")
            case 2:
                parts.append(f'data: {{"a":{end}data: 1}}{end}{blank}')
            case 3:
                parts.append(draw(st.sampled_from([end, "id: 3" + end, "data" + end, "\n", "\r"])))
            case _:
                space = draw(st.sampled_from([" ", ""]))
                parts.append(f"data:{space}{draw(_payloads)}{end}{blank}")
    return "".join(parts).encode()


@settings(max_examples=600, deadline=None)
@given(_streams(), st.lists(st.integers(0, 10_000), max_size=12))
@example(stream(chunk("x" * SMALL), chunk()), [3, 60, 180, 181, 182])
def test_any_split_tells_the_same(data: bytes, places: list[int]) -> None:
    assert scan(cut(data, places)) == scan([data])


@settings(max_examples=200, deadline=None)
@given(_streams())
def test_single_bytes_tell_the_same(data: bytes) -> None:
    assert scan([data[i : i + 1] for i in range(len(data))]) == scan([data])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 300), max_size=6))
@example(b"data:\n\ndata: x\n\n\n\ndata: y\r\r\n", [8])
def test_anything_can_be_scanned(data: bytes, places: list[int]) -> None:
    assert scan(cut(data, places)) == scan([data])


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from([chunk(), ROLE, STOP, chunk("日本"), chunk("usage"), USAGE])))
def test_many_at_once_are_counted_as_one_by_one(payloads: list[str]) -> None:
    together, alone = StreamScanner(), StreamScanner()
    together.feed(stream(*payloads))
    for payload in payloads:
        alone.feed(stream(payload))
    assert facts(together) == facts(alone)


_texts = st.one_of(
    st.sampled_from(["usage", "error", "[DONE]", '"},"finish_reason":"stop"', "\\", "\n\n"]),
    st.text('ab日\\"\n {}', min_size=1, max_size=6),
)
_events = st.one_of(
    _texts.map(chunk),
    st.tuples(_texts, st.sampled_from([{"usage": {"prompt_tokens": 4}}, {"n": 1}])).map(
        lambda drawn: chunk(drawn[0], **drawn[1])
    ),
    st.sampled_from([STOP, USAGE, ERROR]),
)


@settings(max_examples=600, deadline=None)
@given(st.lists(_events, max_size=12), st.lists(st.integers(0, 3000), max_size=4))
def test_it_finds_what_reading_each_event_would_find(events: list[str], places: list[int]) -> None:
    found = [json.loads(e) for e in events]
    used = [e["usage"] for e in found if e.get("usage")]
    scanner = StreamScanner()
    for piece in cut(stream(*events), places):
        scanner.feed(piece)
    assert scanner.tokens == sum(bool(c["delta"]) for e in found for c in e.get("choices", ()))
    assert scanner.finish_reason == ("stop" if STOP in events else None)
    assert scanner.error == ("it broke" if ERROR in events else None)
    assert scanner.usage.prompt == (used[-1]["prompt_tokens"] if used else None)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_whole_stream(end: str) -> None:
    scanner = StreamScanner()
    contents = ["日本", "語", "🙂"]
    scanner.feed(stream(ROLE, *map(chunk, contents), STOP, USAGE, DONE, end=end))
    assert facts(scanner) == (3, Usage(7, 3), "stop", None, True, "finished", True)


def test_an_error_in_the_stream_is_no_success_though_it_says_done() -> None:
    scanner = StreamScanner()
    scanner.feed(stream(ROLE, chunk(), ERROR, DONE))
    assert scanner.outcome == "error"
    assert scanner.error == "it broke"
    assert scanner.tokens == 1


def test_a_stream_without_its_ending_is_cut() -> None:
    scanner = StreamScanner()
    scanner.feed(stream(ROLE, chunk(), STOP))
    assert scanner.outcome == "truncated"
    scanner.feed(b'data: {"cho')
    assert not scanner.between_events


def test_words_in_the_text_are_not_taken_for_fields() -> None:
    scanner = StreamScanner()
    texts = ['"usage":{"prompt_tokens":1}', "data: [DONE]\n\n", '"error"', "usage", "[DONE]"]
    scanner.feed(stream(*map(chunk, texts)))
    assert scanner.tokens == len(texts)
    assert scanner.usage == Usage()
    assert scanner.outcome == "truncated"


def test_usage_that_comes_with_every_event_is_the_newest() -> None:
    scanner = StreamScanner()
    for count in range(4):
        usage = {"prompt_tokens": 7, "completion_tokens": count}
        scanner.feed(stream(chunk("a" if count else "", usage=usage)))
    scanner.feed(stream(chunk(usage=None)))
    assert scanner.usage == Usage(7, 3)


def test_what_an_oversized_event_holds_is_not_kept() -> None:
    scanner = StreamScanner(1000)
    piece = b"x" * 400
    scanner.feed(b"data: ")
    for _ in range(1000):
        scanner.feed(piece)
        assert len(scanner._tail) <= 1400
    assert scanner.tokens == 0
    scanner.feed(b"\n")
    scanner.feed(b"\ndata: [DONE]\n\n")
    assert scanner.tokens == 1
    assert scanner.outcome == "finished"


@pytest.mark.parametrize(
    ("begins", "outcome", "tokens"),
    [
        ('data: {"error": {"message": "', "error", 0),
        ('data: {"object":"error","message":"', "error", 0),
        ('event: response.failed\ndata: {"response":"', "error", 0),
        ('event: response.completed\ndata: {"response":"', "finished", 0),
        ('data: {"error": null, "choices": [{"text": "', "truncated", 1),
        ('data: {"choices": [{"text": "error', "truncated", 1),
    ],
)
@pytest.mark.parametrize("size", [100, 10_000])
def test_an_oversized_event_shows_by_its_beginning_how_the_stream_ends(
    begins: str, outcome: str, tokens: int, size: int
) -> None:
    event = (begins + "x" * 2000 + '"}\n\n').encode()
    scanner = StreamScanner(1000)
    for begin in range(0, len(event), size):
        scanner.feed(event[begin : begin + size])
    assert (scanner.outcome, scanner.tokens) == (outcome, tokens)
    scanner.feed(stream(chunk()))
    assert scanner.tokens == tokens + 1


def test_a_large_event_in_single_bytes_takes_no_time() -> None:
    """Each byte is looked at once or so, not with all those before it."""
    scanner = StreamScanner()
    for _ in range(300_000):
        scanner.feed(b"x")
    scanner.feed(b"\n\n" + stream(DONE))
    assert scanner.done


@pytest.mark.parametrize(
    ("event", "usage", "outcome", "tokens"),
    [
        ("response.output_text.delta", Usage(), "truncated", 1),
        ("content_block_delta", Usage(), "truncated", 1),
        ("response.completed", Usage(5, 2), "finished", 0),
        ("response.incomplete", Usage(5, 2), "finished", 0),
        ("message_delta", Usage(5, 2), "truncated", 0),
        ("message_stop", Usage(5, 2), "finished", 0),
        ("response.failed", Usage(), "error", 0),
        ("error", Usage(), "error", 0),
    ],
)
def test_protocols_that_name_their_events(
    event: str, usage: Usage, outcome: str, tokens: int
) -> None:
    scanner = StreamScanner()
    data = {"response": {"usage": {"input_tokens": 5, "output_tokens": 2}}} if any(usage) else {}
    scanner.feed(f"event: {event}\ndata: {json.dumps(data)}\n\n".encode())
    assert (scanner.usage, scanner.outcome, scanner.tokens) == (usage, outcome, tokens)


def test_usage_in_two_parts() -> None:
    scanner = StreamScanner()
    scanner.feed(b'event: message_start\ndata: {"message":{"usage":{"input_tokens":9}}}\n\n')
    scanner.feed(b'event: message_delta\ndata: {"usage":{"output_tokens":4}}\n\n')
    assert scanner.usage == Usage(9, 4)


@pytest.mark.parametrize(
    ("middle", "outcome", "prompt"),
    [
        ('"error":{"message":"boom"},"details":[{"x":{"y":"z"}}]', "error", None),
        ('"usage":{"prompt_tokens":7,"completion_tokens":9},"a":[{"x":{"y":"z"}}]', "finished", 7),
    ],
)
def test_an_event_that_only_begins_and_ends_like_the_others_is_read(
    middle: str, outcome: str, prompt: int | None
) -> None:
    plain = '{"choices":[{"delta":{"content":"%s"}}]}'
    odd = '{"choices":[{"delta":{"content":"a"}}],' + middle + "}"
    said = (plain % "r", plain % "q", odd, plain % "s", "[DONE]")
    events = [f"data: {one}\n\n".encode() for one in said]
    for chunks in (events, [b"".join(events)]):
        scanner = StreamScanner()
        for chunk in chunks:
            scanner.feed(chunk)
        assert (scanner.outcome, scanner.usage.prompt) == (outcome, prompt)
