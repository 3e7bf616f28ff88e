from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops_loadtests.client import sse
from modelops_loadtests.client.sse import EventParser, EventTooLargeError

LINES = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0"), max_size=12)
ENDINGS = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Bytes of a stream, and the events in it."""
    end, parts, events = draw(ENDINGS), [], []
    for _ in range(draw(st.integers(0, 4))):
        lines = draw(st.lists(LINES, min_size=1, max_size=3))
        kind = draw(st.sampled_from(["", "error"]))
        block = [": a comment", "id: 7"] if draw(st.booleans()) else []
        block += [f"event: {kind}"] if kind else []
        block += [f"data: {line}" if line else "data" for line in lines]
        parts.append("".join(line + end for line in [*block, *[""] * draw(st.integers(1, 3))]))
        events.append((kind.encode(), "\n".join(lines).encode()))
    parts.append(draw(st.sampled_from(["", "data: cut", ": only a comment\n\n"])))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return (bom + "".join(parts)).encode(), events


@given(streams(), st.data())
def test_events_are_the_same_however_the_bytes_were_cut(
    stream: tuple[bytes, list[tuple[bytes, bytes]]], data: st.DataObject
) -> None:
    raw, events = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    parser = EventParser()
    got = []
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        got += parser.feed(raw[begin:end])
    assert got == events


@given(streams())
def test_an_event_is_given_by_the_byte_that_completes_it(
    stream: tuple[bytes, list[tuple[bytes, bytes]]],
) -> None:
    raw, events = stream
    parser, whole = EventParser(), EventParser()
    given_at = [len(parser.feed(raw[i : i + 1])) for i in range(len(raw))]
    assert max(given_at, default=0) <= 1
    if events:
        last = max(i for i, n in enumerate(given_at) if n)
        assert whole.feed(raw[: last + 1]) == events


def test_an_event_without_an_end_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = EventParser()
    parser.feed(b"data: " + b"x" * 90)
    with pytest.raises(EventTooLargeError):
        parser.feed(b"x" * 90)
