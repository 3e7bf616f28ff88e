"""Threads that share one engine and one queue: one reads and takes, the others run what they took.

Whoever has the turn waits for requests, takes a batch and hands the turn on before it runs it. So a
lone request is run by the thread that read it, and no lane is idle while something waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Protocol

from modelops.errors import DeadlineError, EngineError, ModelopsError, OverloadedError
from modelops_servers.batching import Batcher, Item, Outputs, Taken, answer
from modelops_servers.loading import Prepared
from modelops_servers.pulse import Pulse


class Desk(Protocol):
    """Where requests come in and answers go out."""

    def fill(self, wait: bool) -> bool:
        """Put what has come into the queue; where ``wait``, not before something has.

        Called by one lane at a time. False: nothing more will come.
        """

    def refuse(self, items: Sequence[tuple[Item, ModelopsError]], now: float) -> None:
        """Say of each that it was never run, and why."""

    def hand_out(
        self, batch: Sequence[Item], results: Sequence[Outputs | ModelopsError], began: float
    ) -> None:
        """Answer a batch that was taken at ``began``; called by several lanes at once."""

    def wake(self) -> None:
        """End a wait in ``fill``; from any thread."""


class Lanes:
    """As many threads as ``prepared`` has lanes, the caller's own among them."""

    def __init__(self, prepared: Prepared, batcher: Batcher, pulse: Pulse, desk: Desk) -> None:
        self._prepared = prepared
        self._batcher = batcher
        self._pulse = pulse
        self._desk = desk
        self._turn = threading.Lock()
        self._ended = False
        self._failure: BaseException | None = None

    def work(self) -> None:
        """Work until the desk says that nothing more will come and all of it is answered.

        Raises:
            BaseException: what a lane failed with; the others end their calls and then.
        """
        others = [
            threading.Thread(target=self._lane, name=f"lane-{number}", daemon=True)
            for number in range(2, self._prepared.lanes + 1)
        ]
        for lane in others:
            lane.start()
        self._lane()
        for lane in others:
            lane.join()
        if self._failure is not None:
            raise self._failure

    def _lane(self) -> None:
        engine, signature = self._prepared.engine, self._prepared.signature
        try:
            while True:
                with self._turn:
                    batch, began = self._next()
                if not batch:
                    return
                results = answer(engine, signature, batch)
                self._pulse.ended(time.monotonic())
                self._desk.hand_out(batch, results, began)
        except BaseException as error:  # noqa: BLE001 - told by ``work``
            self._failure = error
            self._ended = True
            self._desk.wake()

    def _next(self) -> tuple[list[Item], float]:
        """Return the next batch and when it was taken; an empty one ends the lane."""
        batcher = self._batcher
        while not self._ended or len(batcher):
            if not self._ended and not self._desk.fill(not len(batcher)):
                self._ended = True
            now = time.monotonic()
            taken = batcher.take(now)
            if refused := _refused(taken):
                self._desk.refuse(refused, now)
            if taken.batch:
                self._pulse.began(now, len(batcher), len(taken.batch))
                return taken.batch, now
        return [], 0.0


def _refused(taken: Taken) -> list[tuple[Item, ModelopsError]]:
    expired, overdue, cancelled = taken.expired, taken.overdue, taken.cancelled
    if not (expired or overdue or cancelled):
        return []
    return [
        *((item, DeadlineError("the deadline passed in the queue")) for item in expired),
        *((item, OverloadedError("it waited too long for the engine")) for item in overdue),
        *((item, EngineError("withdrawn")) for item in cancelled),
    ]
