"""The queue: who goes next, who goes along, and that everybody leaves it once."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from modelops.config import BatchingConfig
from modelops.signature import DimRange, Padding, Signature, TensorSpec
from modelops_servers.batching import Batcher, Item, ItemMaker, Taken


def spec(name: str, *shape: int | str, dtype: str = "float32") -> TensorSpec:
    return TensorSpec(name=name, dtype=dtype, shape=shape)


PLAIN = Signature(
    inputs=(spec("x", "batch", 4),),
    outputs=(spec("y", "batch", 2),),
    dims={"batch": DimRange(min=0, max=48)},
)
TOKENS = Signature(
    inputs=(spec("ids", "batch", "sequence", dtype="int64"), spec("w", "batch", "k")),
    outputs=(spec("y", "batch", 2),),
    dims={
        "batch": DimRange(min=0, max=48),
        "sequence": DimRange(min=0, max=512),
        "k": DimRange(min=0, max=9),
    },
    padding=Padding(dim="sequence", mask="ids", values={"ids": 0}),
)


def rows(count: int = 1, at: float = 0.0, **times: Any) -> Item:
    return ItemMaker(PLAIN).make({"x": np.zeros((count, 4), "f4")}, enqueued=at, **times)


def tokens(length: int, at: float = 0.0, *, count: int = 1, k: int = 1, **times: Any) -> Item:
    tensors = {"ids": np.zeros((count, length), "i8"), "w": np.zeros((count, k), "f4")}
    return ItemMaker(TOKENS).make(tensors, enqueued=at, **times)


def queue(signature: Signature, *items: Item, **options: Any) -> Batcher:
    slack = options.pop("slack", 8)
    together = options.pop("together", True)
    batcher = Batcher(signature, BatchingConfig(**options), together=together, slack=slack)
    for item in items:
        batcher.put(item)
    return batcher


def drained(batcher: Batcher, now: float = 0.0) -> list[list[Item]]:
    batches = []
    while len(batcher):
        batches.append(batcher.take(now).batch)
    return batches


def test_nothing_waiting_gives_nothing() -> None:
    assert queue(PLAIN).take(0.0) == Taken()


def test_whatever_waits_goes_at_once_and_together() -> None:
    items = [rows() for _ in range(5)]
    batcher = queue(PLAIN, *items, max_delay_ms=60_000)
    assert len(batcher) == 5
    assert batcher.take(0.0).batch == items
    assert len(batcher) == 0


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [
        ([1] * 7, 3, [3, 3, 1]),
        ([2, 2, 2, 1], 5, [4, 3]),
        ([3, 3, 3], 5, [3, 3, 3]),
        ([9, 1, 1], 4, [9, 2]),  # one that is too large goes alone
        ([1, 9, 1], 4, [1, 9, 1]),
        ([0, 0, 0, 4], 4, [0, 4]),  # one without rows still costs its place
        ([30, 30], 64, [30, 30]),  # the artifact was proven up to 48
        ([24, 24], 64, [48]),
    ],
)
def test_rows_are_counted_not_requests(sizes: list[int], limit: int, expected: list[int]) -> None:
    batches = drained(queue(PLAIN, *(rows(n) for n in sizes), max_size=limit))
    assert [sum(item.rows for item in batch) for batch in batches] == expected


@pytest.mark.parametrize("options", [{"together": False}, {"max_size": 1}])
def test_apart_everyone_goes_alone_in_order_of_arrival(options: dict[str, Any]) -> None:
    items = [tokens(n, at=i) for i, n in enumerate((5, 90, 5, 200))]
    assert drained(queue(TOKENS, *items, **options)) == [[i] for i in items]


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": (spec("y", 2, "batch"),)},  # the batch dim elsewhere than first
        {"outputs": (spec("y", "batch", "batch"),)},
        {"outputs": (spec("y", "batch", "2*batch"),)},
        {"outputs": (spec("y", "batch", "found"),)},  # a size that only the values determine
        {"dims": {"batch": DimRange(min=1, max=1)}},
        {"dims": {"batch": DimRange(min=5, max=9)}},
        {"inputs": (spec("x", "batch", 4), spec("z", 3))},  # an input that all rows share
    ],
)
def test_what_the_signature_does_not_allow_never_shares_a_call(change: dict[str, Any]) -> None:
    batcher = queue(PLAIN.model_copy(update=change), rows(), rows())
    assert [len(batch) for batch in drained(batcher)] == [1, 1]


def test_only_like_lengths_go_together() -> None:
    near = [tokens(n) for n in (9, 16, 12)]
    far = [tokens(n) for n in (8, 17, 100)]
    batches = drained(queue(TOKENS, *far, *near))
    assert near in batches
    assert all([item] in batches for item in far)
    wide = drained(queue(TOKENS, *far, *near, slack=1000))
    assert [len(batch) for batch in wide] == [6]


def test_other_dims_must_be_equal() -> None:
    a, b, c = tokens(5, k=1), tokens(5, k=2), tokens(5, k=1)
    assert drained(queue(TOKENS, a, b, c)) == [[a, c], [b]]


@pytest.mark.parametrize(
    "change",
    [
        {"padding": None},
        {"padding": Padding(dim="sequence", mask="ids", values={})},
        {"outputs": (spec("y", "batch", "sequence//2"),)},
    ],
)
def test_where_nothing_can_be_padded_lengths_must_be_equal(change: dict[str, Any]) -> None:
    signature = TOKENS.model_copy(update=change)
    maker = ItemMaker(signature)
    a, b, c = (maker.make(tokens(n).tensors, enqueued=0.0) for n in (15, 16, 15))
    assert drained(queue(signature, a, b, c)) == [[a, c], [b]]


def test_a_fuller_call_goes_first_but_only_while_the_oldest_is_young() -> None:
    def waiting() -> tuple[Batcher, Item, list[Item]]:
        lone = tokens(100, at=10.0)
        many = [tokens(5, at=10.001) for _ in range(4)]
        return queue(TOKENS, lone, *many, max_delay_ms=2), lone, many

    batcher, lone, many = waiting()
    assert batcher.take(10.0015).batch == many
    assert batcher.take(10.0015).batch == [lone]
    batcher, lone, many = waiting()
    assert batcher.take(10.0025).batch == [lone]


@pytest.mark.parametrize("delay_ms", [0.0, 2.0, 500.0])
def test_a_flood_of_one_length_starves_nobody(delay_ms: float) -> None:
    """Calls take 10 ms and 64 more of the flood come meanwhile, for ever."""
    batcher = queue(TOKENS, max_delay_ms=delay_ms)
    lone = tokens(200, at=0.5)
    for number in range(200):
        now = number * 0.01
        for _ in range(64 if len(batcher) < 256 else 32):
            batcher.put(tokens(10, at=now))
        if number == 50:
            batcher.put(lone)
        batch = batcher.take(now).batch
        assert batch
        if lone in batch:
            # Those before it in the queue (256 at most, 32 a call) go first, or its delay passes.
            assert now - lone.enqueued <= max(0.1, delay_ms / 1000 + 0.1)
            return
    pytest.fail("it never went")


def test_the_expired_the_overdue_and_the_withdrawn_are_told_apart_and_never_run() -> None:
    fine = rows(deadline=9.0, start_by=5.0)
    late = rows(deadline=1.0)
    both = rows(deadline=1.0, start_by=0.5)
    overdue = rows(start_by=2.0, deadline=9.0)
    gone = rows()
    batcher = queue(PLAIN, late, both, overdue, gone, fine, max_size=2)
    gone.cancelled = True
    assert batcher.take(2.0) == Taken([fine], [late, both], [overdue], [gone])
    assert len(batcher) == 0


def test_the_withdrawn_are_dropped_without_any_time_having_passed() -> None:
    items = [tokens(5), tokens(90), tokens(5)]
    batcher = queue(TOKENS, *items)
    items[0].cancelled = items[1].cancelled = True
    seen = [batcher.take(0.0), batcher.take(0.0)]
    assert [taken.batch for taken in seen] == [[items[2]], []]
    assert [i for taken in seen for i in taken.cancelled] == items[:2]
    assert len(batcher) == 0


def test_a_deadline_deep_in_the_queue_is_noticed_at_the_next_take() -> None:
    crowd = [rows(at=0.0) for _ in range(100)]
    batcher = queue(PLAIN, *crowd, rows(deadline=1.0), max_size=4)
    assert batcher.take(0.9).expired == []
    assert len(batcher.take(1.0).expired) == 1


def test_what_left_is_not_kept() -> None:
    """However long one waits for others to go before it, those that went are let go."""
    batcher = queue(TOKENS, tokens(300, at=0.0), max_delay_ms=60_000)
    for number in range(400):
        batcher.put(tokens(number // 2))
        batcher.put(tokens(number // 2))
        assert len(batcher.take(0.0).batch) == 2
    assert len(batcher) == len(batcher._buckets) == 1
    assert len(batcher._order) < 100


class AnyOrder(RuleBasedStateMachine):
    """Whatever comes, in whatever order: everybody leaves once, and no call is what may not be."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = Batcher(TOKENS, BatchingConfig(max_size=4), together=True)
        self.now = 0.0
        self.put: list[Item] = []
        self.left: Counter[int] = Counter()

    @rule(
        length=st.sampled_from([0, 1, 7, 8, 9, 16, 300]),
        count=st.integers(0, 6),
        k=st.integers(1, 2),
        deadline=st.none() | st.floats(0, 0.02),
        start_by=st.none() | st.floats(0, 0.02),
    )
    def arrive(
        self, length: int, count: int, k: int, deadline: float | None, start_by: float | None
    ) -> None:
        item = tokens(
            length,
            self.now,
            count=count,
            k=k,
            deadline=None if deadline is None else self.now + deadline,
            start_by=None if start_by is None else self.now + start_by,
        )
        self.put.append(item)
        self.batcher.put(item)

    @rule(seconds=st.floats(0, 0.01))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(which=st.integers(0, 100))
    def withdraw(self, which: int) -> None:
        if self.put:
            self.put[which % len(self.put)].cancelled = True

    @rule()
    def take(self) -> None:
        able = [
            i for i in self.put if not self.left[id(i)] and not i.cancelled and self.now < i.due
        ]
        oldest = min((i.enqueued for i in able), default=math.inf)
        taken = self.batcher.take(self.now)
        for item in (*taken.batch, *taken.expired, *taken.overdue, *taken.cancelled):
            self.left[id(item)] += 1
        assert bool(taken.batch) == bool(able)
        assert all(item in able for item in taken.batch)
        assert all(self.now >= item.due for item in (*taken.expired, *taken.overdue))
        assert all(item.cancelled for item in taken.cancelled)
        if taken.batch:
            lengths = [item.length for item in taken.batch]
            assert max(lengths) - min(lengths) < 8
            assert len({item.tensors["w"].shape[1] for item in taken.batch}) == 1
            assert len(taken.batch) == 1 or sum(i.rows for i in taken.batch) <= 4
            if self.now - oldest > 0.002:
                assert taken.batch[0].enqueued == oldest

    @invariant()
    def nobody_leaves_twice_or_is_lost(self) -> None:
        assert all(count == 1 for count in self.left.values())
        assert len(self.batcher) == len(self.put) - len(self.left)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.lists(st.integers(1, 512), min_size=1, max_size=60), st.integers(1, 64))
def test_padding_never_costs_an_item_more_than_the_slack(lengths: list[int], slack: int) -> None:
    for batch in drained(queue(TOKENS, *(tokens(n) for n in lengths), slack=slack)):
        longest = max(item.length for item in batch)
        assert all(longest - item.length < slack for item in batch)


def test_what_was_done_for_a_request_does_not_count_as_waiting() -> None:
    item = rows(at=0.0, start_by=5.0, deadline=20.0)
    item.put_off(8.0)
    batcher = queue(PLAIN, item)
    assert batcher.take(10.0).batch == [item]
    late = rows(at=0.0, start_by=5.0, deadline=7.0)
    late.put_off(8.0)
    assert queue(PLAIN, late).take(10.0).expired == [late]
