"""Drift: what is the same up to the first difference, and log-probabilities at given places."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from scripted_upstream import Exchange, scripted

from modelops.errors import EngineError
from modelops_servers.keeper.client import EngineClient
from modelops_servers.text_bench import drift
from modelops_servers.text_bench.drift import Forced, Greedy, Seen, compare


def seen(answers: list[list[int]], shift: float = 0.0, tops: tuple[int, ...] = (1, 2)) -> Seen:
    greedy = tuple(
        Greedy((9, 9), tuple(a), tuple(-1.0 - shift * (i + 1) for i in range(len(a))))
        for a in answers
    )
    forced = tuple(Forced((-1.0, -2.0 - shift), tops) for _ in answers)
    return Seen(greedy, forced)


def test_the_same_is_no_drift() -> None:
    found = compare("auto", seen([[1, 2, 3], [4, 5, 6]]), seen([[1, 2, 3], [4, 5, 6]]))
    assert (found.against, found.prompts, found.tokens, found.same_tokens) == ("auto", 2, 6, 6)
    assert found.same_share == 1
    assert found.diverged_at == (None, None)
    assert found.decoded is not None
    assert found.decoded.max == found.forced.max == 0
    assert found.same_top == 1


def test_only_what_stands_before_the_first_difference_is_compared_as_generated() -> None:
    one = seen([[1, 2, 3, 4], [5, 6, 7, 8]])
    other = seen([[1, 2, 0, 4], [5, 6, 7, 8]], shift=0.25, tops=(1, 3))
    found = compare("auto", one, other)
    assert found.diverged_at == (2, None)
    assert found.same_tokens == 2 + 4
    assert found.same_share == pytest.approx(6 / 8)
    assert found.decoded is not None
    # 0.25, 0.5 of the first; 0.25, 0.5, 0.75, 1.0 of the second.
    assert found.decoded.positions == 6
    assert found.decoded.mean == pytest.approx(3.25 / 6, abs=1e-6)
    assert found.decoded.max == 1.0
    # What was forced is compared everywhere.
    assert found.forced.positions == 4
    assert found.forced.mean == 0.125
    assert found.forced.max == 0.25
    assert found.same_top == 0.5


def test_where_nothing_is_the_same_nothing_is_compared_as_generated() -> None:
    found = compare("auto", seen([[1, 2]]), seen([[3, 2]]))
    assert found.same_share == 0
    assert found.decoded is None
    assert found.forced.positions == 2


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer as vLLM does: the greedy one counts on, and the likeliest is always token 7."""
    if "prompt_logprobs" in asked:
        at = [
            {str(t): {"logprob": -float(t), "rank": 2}, "7": {"logprob": -0.1, "rank": 1}}
            for t in asked["prompt"][1:]
        ]
        return {"prompt_logprobs": [None, *at]}
    tokens = [asked["prompt"][-1] + 1 + i for i in range(asked["max_tokens"])]
    logprobs = {"tokens": [f"token_id:{t}" for t in tokens], "token_logprobs": [-0.5] * len(tokens)}
    return {"logprobs": logprobs}


def _look(folder: Path, baseline: Seen | None, script: Any) -> Seen:
    async def look() -> Seen:
        async with EngineClient(socket=folder / "e.sock") as client:
            return await drift.look(client, "m", [(1, 2), (20, 30, 40)], 3, baseline)

    with scripted(script, folder / "e.sock"):
        return asyncio.run(look())


def test_answers_are_asked_one_at_a_time_and_the_baselines_text_is_forced(tmp_path: Path) -> None:
    out, most, forced = 0, 0, []

    async def script(exchange: Exchange) -> None:
        nonlocal out, most
        out += 1
        most = max(most, out)
        asked = exchange.json
        if "prompt_logprobs" in asked:
            forced.append(tuple(asked["prompt"]))
        await asyncio.sleep(0.01)
        out -= 1
        await exchange.answer({"choices": [_answer(asked)]})

    found = _look(tmp_path, None, script)
    assert most == 1
    assert [g.tokens for g in found.greedy] == [(3, 4, 5), (41, 42, 43)]
    assert forced == [(1, 2, 3, 4, 5), (20, 30, 40, 41, 42, 43)]
    assert found.forced[0].logprobs == (-2, -3, -4, -5)
    assert found.forced[0].top == (7, 7, 7, 7)

    other = Seen((Greedy((1,), (8,), (0.0,)), Greedy((2,), (9,), (0.0,))), ())
    forced.clear()
    _look(tmp_path, other, script)
    assert forced == [(1, 8), (2, 9)]


@pytest.mark.parametrize(
    ("choice", "why"),
    [
        ({"logprobs": None}, "no log-probabilities"),
        ({"logprobs": {"tokens": ["token_id:1"], "token_logprobs": [-1]}}, "1 tokens instead of 3"),
        ({"logprobs": {"tokens": ["a"], "token_logprobs": [-1]}}, "no log-probabilities"),
        (None, "answer is none"),
    ],
)
def test_an_answer_that_is_none_is_told(tmp_path: Path, choice: Any, why: str) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({"choices": [choice]})

    with pytest.raises(EngineError, match=why):
        _look(tmp_path, None, script)


def test_a_refusal_is_told_with_what_it_said(tmp_path: Path) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer({"error": {"message": "prompt too long"}}, 400)

    with pytest.raises(EngineError, match=r"400: .*prompt too long"):
        _look(tmp_path, None, script)
