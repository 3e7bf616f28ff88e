"""One request as batching sees it, and how it is measured."""

from __future__ import annotations

import math
import time
from collections.abc import Hashable
from typing import Any

from modelops.protocols import Tensors
from modelops.signature import Signature
from modelops_servers.batching.layout import layout_of


class Item:
    """One request. Times are on ``time.monotonic``'s clock."""

    __slots__ = (
        "cancelled",
        "deadline",
        "due",
        "enqueued",
        "group",
        "length",
        "owner",
        "rows",
        "start_by",
        "tensors",
        "waiting",
    )

    def __init__(
        self,
        tensors: Tensors,
        *,
        enqueued: float,
        rows: int = 1,
        length: int = 0,
        deadline: float | None = None,
        start_by: float | None = None,
        owner: Any = None,
    ) -> None:
        self.tensors = tensors
        """Checked against the signature already."""
        self.deadline = deadline
        self.start_by = start_by
        """A request that has not begun by then is refused as overloaded."""
        self.enqueued = enqueued
        self.cancelled = False
        """Set, from any thread, by whoever withdraws it."""
        self.rows = rows
        """Size along the batch dim; 1 where there is none."""
        self.length = length
        """Size along the padding dim; 0 where there is none."""
        self.owner = owner
        """Who is to be answered; batching never looks at it."""
        # The batcher's own: when it must be looked at again, whom it may join, whether it waits.
        self.due = _first(deadline, start_by)
        self.group: Hashable = None
        self.waiting = False

    def put_off(self, seconds: float) -> None:
        """Let what was done for it meanwhile not count as waiting; before it is queued."""
        if self.start_by is not None:
            self.start_by += seconds
            self.due = _first(self.deadline, self.start_by)


def _first(deadline: float | None, start_by: float | None) -> float:
    return min(
        math.inf if deadline is None else deadline, math.inf if start_by is None else start_by
    )


class ItemMaker:
    """Makes items of one signature, measured by looking at as few shapes as possible."""

    def __init__(self, signature: Signature) -> None:
        layout = layout_of(signature)
        padding = layout.padding
        self._rows = None if layout.batch is None else layout.places[layout.batch][0]
        self._length = None if padding is None else layout.places[padding.dim]

    def make(
        self,
        tensors: Tensors,
        deadline: float | None = None,
        start_by: float | None = None,
        owner: Any = None,
        enqueued: float | None = None,
    ) -> Item:
        """Return one request; ``enqueued`` is now where it is not given."""
        item = Item(
            tensors,
            enqueued=time.monotonic() if enqueued is None else enqueued,
            deadline=deadline,
            start_by=start_by,
            owner=owner,
        )
        if self._rows is not None:
            item.rows = tensors[self._rows].shape[0]
        if self._length is not None:
            name, axis = self._length
            item.length = tensors[name].shape[axis]
        return item
