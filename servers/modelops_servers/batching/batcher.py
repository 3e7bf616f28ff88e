"""The queue in front of an idle engine: who goes next, and who goes along.

Items wait in buckets of those that may share a call: equal in every size but the batch's, and,
where the signature pads, of like length. A bucket spans ``slack`` positions, so that what padding
costs stays under what the call saves. The oldest item's bucket goes next; only while the oldest has
waited less than ``max_delay_ms`` may a fuller one go before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from modelops.config import BatchingConfig
from modelops.signature import Signature
from modelops_servers.batching.item import Item
from modelops_servers.batching.layout import layout_of, row_limit
from modelops_servers.batching.slack import DEFAULT_SLACK

_GHOSTS = 64


@dataclass(slots=True)
class Taken:
    """What left the queue: one batch to run, and those who must be told something else."""

    batch: list[Item] = field(default_factory=list)
    expired: list[Item] = field(default_factory=list)
    """Their deadline passed."""
    overdue: list[Item] = field(default_factory=list)
    """They had not begun by ``start_by``."""
    cancelled: list[Item] = field(default_factory=list)
    """Nobody waits for them."""


class Batcher:
    """Waiting requests of one model, for one thread; only ``Item.cancelled`` is set from others.

    ``together=False`` says that requests never share a call. ``slack`` is how many padded positions
    an item may cost (``padding_slack`` measures it).
    """

    def __init__(
        self,
        signature: Signature,
        config: BatchingConfig,
        *,
        together: bool,
        slack: int = DEFAULT_SLACK,
    ) -> None:
        self._limit = row_limit(signature, config) if together else 1
        self._max_delay = config.max_delay_ms / 1000
        layout = layout_of(signature)
        self._width = max(1, slack) if layout.pads else 1
        grouped = {} if self._limit == 1 else dict(layout.places)
        grouped.pop(layout.batch or "", None)
        padded = None if layout.padding is None else grouped.pop(layout.padding.dim, None)
        self._by_length = padded is not None
        self._equal = tuple(grouped.values())
        self._buckets: dict[Hashable, deque[Item]] = {}
        # All buckets' items in order of arrival; those that left their bucket stay until they
        # come up, so that leaving costs nothing.
        self._order: deque[Item] = deque()
        self._count = 0
        self._due = math.inf

    def __len__(self) -> int:
        """How many wait; the cancelled count until they are come across."""
        return self._count

    def put(self, item: Item) -> None:
        """Let ``item`` wait."""
        if self._equal:
            sizes = [item.tensors[name].shape[axis] for name, axis in self._equal]
            item.group = (self._bucket(item), *sizes)
        elif self._by_length:
            item.group = self._bucket(item)
        item.waiting = True
        self._count += 1
        if item.due < self._due:
            self._due = item.due
        self._append(item)
        if len(self._order) > _GHOSTS + 2 * self._count:
            self._order = deque(item for item in self._order if item.waiting)

    def take(self, now: float) -> Taken:
        """Return the next batch, and with it all whose time has passed; never waits.

        The batch is empty only where nothing waits any more.
        """
        taken = Taken()
        if now >= self._due:
            self._sweep(now, taken)
        while self._count and not taken.batch:
            self._fill(taken, self._next(now))
        return taken

    def _bucket(self, item: Item) -> int:
        # Lengths are often multiples of eight: a bucket's longest, so they bring no padding.
        return (item.length + self._width - 1) // self._width

    def _append(self, item: Item) -> None:
        self._order.append(item)
        bucket = self._buckets.get(item.group)
        if bucket is None:
            bucket = self._buckets[item.group] = deque()
        bucket.append(item)

    def _next(self, now: float) -> Hashable:
        """Return the bucket that goes next; something waits."""
        order = self._order
        while not order[0].waiting:
            order.popleft()
        oldest = order[0]
        buckets = self._buckets
        if len(buckets) == 1 or now - oldest.enqueued >= self._max_delay:
            return oldest.group
        return max(buckets, key=lambda group: len(buckets[group]))

    def _fill(self, taken: Taken, group: Hashable) -> None:
        """Take from one bucket, in order of arrival, as many as fit."""
        bucket = self._buckets[group]
        batch, limit = taken.batch, self._limit
        rows = 0
        while bucket and rows < limit:
            item = bucket[0]
            if item.cancelled:
                taken.cancelled.append(item)
            else:
                # One without rows still costs its place; one with too many runs alone.
                rows += item.rows or 1
                if batch and rows > limit:
                    break
                batch.append(item)
            bucket.popleft()
            item.waiting = False
            self._count -= 1
        if not bucket:
            del self._buckets[group]

    def _sweep(self, now: float, taken: Taken) -> None:
        """Take out all whose time has passed, and find when that is next to be looked at."""
        waiting = [item for item in self._order if item.waiting]
        self._order.clear()
        self._buckets.clear()
        self._due = math.inf
        for item in waiting:
            if item.cancelled:
                taken.cancelled.append(item)
            elif item.deadline is not None and now >= item.deadline:
                taken.expired.append(item)
            elif item.start_by is not None and now >= item.start_by:
                taken.overdue.append(item)
            else:
                self._append(item)
                self._due = min(self._due, item.due)
                continue
            item.waiting = False
            self._count -= 1
