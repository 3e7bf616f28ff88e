from __future__ import annotations

import json
from typing import Any

import pytest

from modelops_loadtests.scenarios.generation import GenerationReader, check_whole
from modelops_loadtests.scenarios.scenario import BadAnswerError, Reply


def chunk(delta: dict[str, Any] | None = None, *, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return json.dumps({"choices": [choice], **more}).encode()


ROLE = chunk({"role": "assistant", "content": ""})
STOP = chunk({}, reason="stop")
USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 7}}).encode()


def read(*events: bytes | tuple[bytes, int], chat: bool = True, **more: Any) -> GenerationReader:
    """Feed events a second apart; a pair also says the read that it came in."""
    reader = GenerationReader(chat=chat, **more)
    for at, event in enumerate(events):
        data, number = event if isinstance(event, tuple) else (event, 100 + at)
        reader.event(b"", data, float(at), number)
    return reader


def test_l8_reasoning_is_the_first_token_and_not_the_first_output() -> None:
    for name in ("reasoning", "reasoning_content"):
        thought, said = chunk({name: "hm"}), chunk({"content": "yes"})
        reader = read(ROLE, thought, thought, said, STOP, USAGE, b"[DONE]")
        answer = reader.answer()
        assert reader.problem() is None
        assert (answer.first_token, answer.first_output, answer.last_token) == (1, 3, 3)
        assert answer.chunk_at == [1, 2, 3]
        assert (answer.input_tokens, answer.output_tokens, answer.tokens_from) == (9, 7, "usage")
        assert answer.text == "yes"


def test_a_tool_call_is_output_and_an_empty_delta_is_nothing() -> None:
    name = chunk({"tool_calls": [{"index": 0, "function": {"name": "look", "arguments": ""}}]})
    rest = chunk({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]})
    answer = read(ROLE, chunk({"content": ""}), name, rest, STOP, b"[DONE]").answer()
    assert (answer.first_token, answer.first_output, answer.chunk_at) == (2, 2, [2, 3])


def test_continuous_usage_gives_the_tokens_of_each_chunk() -> None:
    def told(tokens: int, **delta: Any) -> bytes:
        return chunk(delta, usage={"prompt_tokens": 9, "completion_tokens": tokens})

    counted = (told(0, role="assistant"), told(3, content="a"), told(4), told(8, content="b"))
    answer = read(*counted, STOP, USAGE, b"[DONE]").answer()
    assert answer.chunk_tokens == [3, 5]
    assert answer.output_tokens == 7
    assert read(ROLE, told(3, content="a"), chunk({"content": "b"})).answer().chunk_tokens is None


def test_chunks_of_one_read_are_counted_as_coalesced() -> None:
    said = chunk({"content": "a"})
    answer = read(ROLE, (said, 1), (said, 1), (said, 1), (said, 2), b"[DONE]").answer()
    assert answer.coalesced == 2


def test_l13_tokens_without_usage_are_the_tokenizers_or_unknown() -> None:
    events = (ROLE, chunk({"reasoning": "a b "}), chunk({"content": "c d"}), STOP, b"[DONE]")
    assert read(*events).answer().output_tokens is None
    counted = read(*events, count=lambda text: len(text.split())).answer()
    assert (counted.output_tokens, counted.tokens_from) == (4, "tokenizer")


SAID = chunk({"content": "a"})


@pytest.mark.parametrize(
    ("events", "kind"),
    [
        ((ROLE, SAID, b'{"error": {"message": "gone"}}', b"[DONE]"), "error_in_stream"),
        ((ROLE, SAID, chunk({}, reason="abort"), b"[DONE]"), "error_in_stream"),
        ((ROLE, SAID), "unfinished"),
        ((ROLE, STOP, USAGE, b"[DONE]"), "empty_answer"),
        ((), "unfinished"),
        ((ROLE, b"no json", SAID, STOP, b"[DONE]"), "invalid_body"),
        ((b"[1]",), "invalid_body"),
        ((b'{"choices": [{"delta": 3}]}',), "invalid_body"),
        ((b'{"choices": {"a": 1}}', SAID, STOP), "invalid_body"),
        ((chunk({"content": 5}), SAID, STOP), "invalid_body"),
        ((chunk({"reasoning": ["hm"]}), SAID, STOP), "invalid_body"),
        ((SAID, b'{"object": "error", "message": "gone"}', b"[DONE]"), "error_in_stream"),
        ((SAID, b'{"type": "error", "message": "gone"}', b"[DONE]"), "error_in_stream"),
    ],
)
def test_l2_a_stream_that_went_wrong_is_a_failure_of_a_known_kind(
    events: tuple[bytes, ...], kind: str
) -> None:
    reader = read(*events)
    problem = reader.problem()
    assert problem is not None
    assert problem.kind == kind
    reader.answer()  # which also of such a stream says what came


def test_a_usage_that_cannot_be_is_none() -> None:
    for tokens in (b"18446744073709551615", b"-3", b"true", b'"7"', b"7.5", b"0", b"1e30"):
        told = b'{"choices": [], "usage": {"completion_tokens": %b}}' % tokens
        reader = read(SAID, STOP, told, b"[DONE] ")
        assert reader.problem() is None
        assert reader.answer().output_tokens is None


def test_a_stream_may_end_by_its_reason_alone() -> None:
    assert read(ROLE, SAID, STOP).problem() is None


def test_an_error_by_the_type_of_its_event() -> None:
    for data in (b'{"message": "gone"}', b"gone"):
        reader = GenerationReader(chat=True)
        reader.event(b"error", data, 0.0, 1)
        problem = reader.problem()
        assert problem is not None
        assert (problem.kind, problem.detail) == ("error_in_stream", data.decode())


def test_completions_have_their_text_in_another_place() -> None:
    said = json.dumps({"choices": [{"text": "a", "finish_reason": None}]}).encode()
    answer = read(said, said, b"[DONE]", chat=False).answer()
    assert (answer.chunk_at, answer.text) == ([0, 1], "aa")


def test_whole_replies() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    message = {"role": "assistant", "content": "yes", "reasoning": "hm"}
    body = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    answer = check_whole(Reply({}, json.dumps(body).encode()), chat=True, count=None)
    assert (answer.output_tokens, answer.text, answer.first_token) == (2, "yes", None)
    for broken, kind in (
        ({"choices": []}, "invalid_body"),
        ({"choices": [{"message": "x"}]}, "invalid_body"),
        ({"choices": [{"message": {"content": ["x"]}}]}, "invalid_body"),
        ({"choices": [{"message": {"content": ""}}]}, "empty_answer"),
        ({"choices": [{"message": message, "finish_reason": "error"}]}, "error_in_body"),
    ):
        with pytest.raises(BadAnswerError) as caught:
            check_whole(Reply({}, json.dumps(broken).encode()), chat=True, count=None)
        assert caught.value.kind == kind
