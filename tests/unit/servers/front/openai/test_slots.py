"""The line before a text engine."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops_servers.front.openai.request import read
from modelops_servers.front.openai.slots import Slots


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_those_who_wait_are_served_in_the_order_they_came() -> None:
    async def main() -> None:
        slots, served = Slots(1), []

        async def work(name: str) -> None:
            await slots.take(0, 10)
            served.append(name)
            await asyncio.sleep(0)
            slots.give(0)

        await asyncio.gather(*(work(name) for name in "abcde"))
        assert served == list("abcde")
        assert (slots.taken, slots.waiting) == (0, 0)

    asyncio.run(main())


def test_many_tokens_are_not_passed_by_few_and_more_than_there_can_be_come_alone() -> None:
    async def main() -> None:
        slots = Slots(10, 100)
        await slots.take(60, 1)
        large = asyncio.create_task(slots.take(500, 10))
        small = asyncio.create_task(slots.take(10, 10))
        await settle()
        assert not large.done()
        assert not small.done()
        slots.give(60)
        await settle()
        assert large.done()
        assert not small.done()
        slots.give(500)
        await small
        assert (slots.taken, slots.tokens) == (1, 10)

    asyncio.run(main())


def test_who_waits_for_too_long_or_leaves_holds_nobody_up() -> None:
    async def main() -> None:
        slots = Slots(10, 100)
        await slots.take(60, 1)
        large = asyncio.create_task(slots.take(90, 10))
        small = asyncio.create_task(slots.take(10, 10))
        await settle()
        large.cancel()
        await small
        with pytest.raises(TimeoutError):
            await slots.take(90, 0.01)
        assert (slots.taken, slots.tokens, slots.waiting) == (2, 70, 0)

    asyncio.run(main())


def test_who_leaves_in_the_moment_of_being_served_gives_it_back() -> None:
    async def main() -> None:
        slots = Slots(1)
        await slots.take(5, 1)
        late = asyncio.create_task(slots.take(7, 10))
        await settle()
        slots.give(5)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late
        assert (slots.taken, slots.tokens) == (0, 0)

    asyncio.run(main())


def test_more_room_is_given_to_those_who_wait() -> None:
    async def main() -> None:
        slots = Slots(1)
        await slots.take(1, 1)
        waiting = asyncio.create_task(slots.take(1, 10))
        await settle()
        slots.resize(2, None)
        await waiting
        assert (slots.taken, slots.waiting) == (2, 0)

    asyncio.run(main())


@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from(["stay", "leave"])), max_size=25),
    st.integers(1, 4),
)
def test_bounds_hold_and_nothing_leaks(requests: list[tuple[int, str]], most: int) -> None:
    async def main() -> None:
        slots = Slots(most, 100)

        async def work(tokens: int) -> None:
            await slots.take(tokens, 10)
            try:
                assert slots.taken <= most
                assert slots.taken == 1 or slots.tokens <= 100
                await asyncio.sleep(0)
            finally:
                slots.give(tokens)

        tasks = [asyncio.create_task(work(tokens)) for tokens, _ in requests]
        await asyncio.sleep(0)
        for task, (_, what) in zip(tasks, requests, strict=True):
            if what == "leave":
                task.cancel()
                await asyncio.sleep(0)
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        assert (slots.taken, slots.tokens, slots.waiting) == (0, 0, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("fields", "size", "context", "tokens"),
    [
        ('"max_tokens": 10', 400, 1000, 110),
        ('"max_tokens": 10, "n": 3', 400, 1000, 130),
        ('"n": 2', 400, 1000, 100 + 2 * 900),
        ('"x": 1', 400, None, 100),
        ('"max_tokens": 10', 10**9, 1000, 1010),  # an image, say
        ('"prompt": ["a", "b", "c"], "max_tokens": 10', 400, 1000, 100 + 3 * 10),
        ('"prompt": [7, 8, 9], "max_tokens": 10', 400, 1000, 3 + 10),
        ('"prompt": [[7, 8], [9]]', 400, 1000, 3 + 2 * 999),
        ('"max_completion_tokens": 1, "max_tokens": 50', 40, 1000, 60),
    ],
)
def test_what_a_request_may_come_to(
    fields: str, size: int, context: int | None, tokens: int
) -> None:
    asked = read(b'{"model": "m", %s}' % fields.encode())
    assert asked.tokens(size, context) == tokens
