from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from modelops_loadtests.mock import Script
from modelops_loadtests.mock.asked import Asked, BadRequestError, count, read_asked
from modelops_loadtests.mock.plan import END, Step, steps

ASKED = Asked(
    chat=True, model="m", stream=True, tokens=6, prompt_tokens=10, usage=True,
    continuous_usage=False,
)  # fmt: skip


def plan(script: Script, asked: Asked = ASKED, fault: str = "") -> list[Step]:
    return list(steps(script, asked, script.times(0), fault or script.fault, "mock-0"))


def parsed(step: Step) -> list[Any]:
    bodies = [event.removeprefix(b"data: ").strip() for event in step.events]
    return [body.decode() if body == b"[DONE]" else json.loads(body) for body in bodies]


def delta(event: Any) -> Any:
    return event["choices"][0]["delta"]


def test_a_chat_is_its_role_its_tokens_and_its_ending() -> None:
    role, *texts, ending = plan(Script(ttft_ms=100, interval_ms=10))
    assert (role.at, delta(parsed(role)[0])) == (0, {"role": "assistant", "content": ""})
    assert [step.at for step in texts] == pytest.approx([0.1 + 0.01 * n for n in range(6)])
    assert [step.tokens for step in texts] == [(1,)] * 6
    text = "".join(delta(parsed(step)[0])["content"] for step in texts)
    assert count(text) == 6
    finish, usage, done = parsed(ending)
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["usage"] == {"prompt_tokens": 10, "completion_tokens": 6, "total_tokens": 16}
    assert (usage["choices"], done, ending.then) == ([], "[DONE]", END)
    assert ending.at == texts[-1].at


def test_chunks_of_several_tokens_are_an_interval_apart() -> None:
    _, *texts, _ = plan(Script(ttft_ms=0, interval_ms=40, tokens_per_chunk=4))
    assert [(step.at, step.tokens) for step in texts] == [(0, (4,)), (0.04, (2,))]


def test_events_written_together_are_one_step_when_the_last_is_due() -> None:
    _, *texts, _ = plan(Script(ttft_ms=0, interval_ms=10, events_per_write=4))
    assert [len(step.events) for step in texts] == [4, 2]
    assert [step.at for step in texts] == pytest.approx([0.03, 0.05])


def test_reasoning_comes_first_and_the_answer_no_sooner_than_asked() -> None:
    script = Script(ttft_ms=100, interval_ms=10, reasoning_tokens=2, answer_ms=900)
    _, *texts, _ = plan(script)
    fields = [next(iter(delta(parsed(step)[0]))) for step in texts]
    assert fields == ["reasoning_content"] * 2 + ["content"] * 4
    assert [step.at for step in texts[:4]] == pytest.approx([0.1, 0.11, 0.9, 0.91])


def test_a_reply_is_as_long_as_the_request_and_the_script_allow() -> None:
    lengths = [
        sum(sum(step.tokens) for step in plan(Script(tokens=most), replace(ASKED, tokens=asked)))
        for most, asked in ((0, 6), (4, 6), (9, 6), (1, 6))
    ]
    assert lengths == [6, 4, 6, 1]


@pytest.mark.parametrize(
    ("usage", "asked", "told"),
    [
        ("asked", False, False),
        ("asked", True, True),
        ("always", False, True),
        ("never", True, False),
    ],
)
def test_usage_is_told_as_scripted(usage: str, asked: bool, told: bool) -> None:
    ending = parsed(plan(Script(usage=usage), replace(ASKED, usage=asked))[-1])
    assert any("usage" in event for event in ending[:-1]) == told


def test_wrong_and_continuous_usage() -> None:
    script = Script(input_usage_factor=1.3, output_usage_factor=0.5, continuous_usage=True)
    _, *texts, ending = plan(script)
    assert parsed(texts[3])[0]["usage"]["completion_tokens"] == 2
    assert parsed(ending)[-2]["usage"] == {
        "prompt_tokens": 13, "completion_tokens": 3, "total_tokens": 16,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "then"),
    [("error", END), ("unfinished", END), ("cut", "cut"), ("reset", "reset"), ("stall", "stall")],
)
def test_a_fault_comes_after_its_tokens_and_nothing_ends_well(fault: str, then: str) -> None:
    _, *texts, last = plan(Script(fault=fault, fault_after=3))
    assert sum(sum(step.tokens) for step in texts) == 3
    assert last.then == then
    events = parsed(last)
    assert ("error" in events[0]) if fault == "error" else not events


def test_a_completion_has_no_role_and_no_reasoning() -> None:
    first, *texts, _ = plan(Script(reasoning_tokens=3), replace(ASKED, chat=False))
    assert first.events == ()
    assert "".join(parsed(step)[0]["choices"][0]["text"] for step in texts).split() == [
        f"w{n}" for n in range(6)
    ]


def test_a_request_is_read() -> None:
    body = {
        "model": "m", "stream": True, "max_tokens": 9,
        "messages": [{"role": "system", "content": "a b"},
                     {"role": "user", "content": [{"type": "text", "text": "c  d\ne"}]}],
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }  # fmt: skip
    asked = read_asked(json.dumps(body).encode(), "other", chat=True)
    assert (asked.model, asked.tokens, asked.prompt_tokens) == ("m", 9, 5)
    assert asked.usage
    assert asked.continuous_usage
    ids = read_asked(b'{"prompt": [5, 6, 7]}', "other", chat=False)
    assert (ids.model, ids.stream, ids.prompt_tokens) == ("other", False, 3)


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"messages": 5}', b'{"max_tokens": "x"}'])
def test_a_request_that_cannot_be_meant_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequestError):
        read_asked(raw, "m", chat=True)
