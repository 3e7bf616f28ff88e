"""The open loop: each arrival is sent when it is due, whatever became of those before it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np
from gevent import sleep
from gevent.pool import Group

from modelops_loadtests.load.alarm import Alarm
from modelops_loadtests.load.arrivals import Schedule

_EARLY_SECONDS = 0.0001
"""A timer is late by about so much: asked for earlier, it is late as often as early."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request, or conversation, that is due at ``scheduled`` (perf_counter)."""

    number: int
    scheduled: float
    seed: str
    lengths: tuple[int | None, int | None] = (None, None)
    """Tokens of the prompt and of the reply, where a trace says them."""

    def rng(self) -> Random:
        """Return what its content follows from: the same whichever process sends it."""
        return Random(f"{self.seed}/{self.number}")  # noqa: S311


class Dispatcher:
    """Starts a greenlet for each arrival of ``schedule`` at its moment; waits for none of them.

    ``start`` is the schedule's zero, of perf_counter.
    """

    def __init__(
        self,
        schedule: Schedule,
        start: float,
        seed: str,
        send: Callable[[Arrival], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._schedule, self._start, self._seed = schedule, start, seed
        self._send, self._on_error = send, on_error
        self._group = Group()
        self._dispatched: list[float] = []
        self.finished = False
        """Set when nothing more may be sent."""

    @property
    def in_flight(self) -> int:
        """Arrivals that were dispatched and are not over."""
        return len(self._group)

    def run(self) -> None:
        """Dispatch them all; meant for a greenlet of its own."""
        alarm = Alarm()
        try:
            for i, at in enumerate(self._schedule.at.tolist()):
                moment = self._start + at
                alarm.wait_until(moment - _EARLY_SECONDS)
                if self.finished:
                    return
                self._dispatched.append(time.perf_counter() - moment)
                self._group.spawn(self._one, self._arrival(i, moment))
                # To its first wait: otherwise a dispatcher that is late would send nothing until
                # it had caught up.
                sleep(0)
        finally:
            alarm.close()

    def _one(self, arrival: Arrival) -> None:
        try:
            self._send(arrival)
        except Exception as error:  # noqa: BLE001 - whatever a scenario raises ends the run
            self._on_error(error)

    def _arrival(self, place: int, moment: float) -> Arrival:
        schedule = self._schedule
        asked, answered = (
            None if column is None else int(column[place]) or None
            for column in (schedule.input_tokens, schedule.output_tokens)
        )
        number = int(schedule.numbers[place])
        return Arrival(number, moment, self._seed, (asked, answered))

    def kill(self) -> None:
        """End those that are in flight; each records itself as cut."""
        self._group.kill(timeout=5)

    def health(self, start: float, end: float) -> dict[str, float | int | None]:
        """Return how many were dispatched that were due from ``start`` to ``end``, and how late.

        Both are seconds of the schedule.
        """
        at = self._schedule.at[: len(self._dispatched)]
        inside = (at >= start) & (at < end)
        lags = np.array(self._dispatched)[inside] * 1000
        late = lags[lags < (end - at[inside]) * 1000] if len(lags) else lags
        return {
            "dispatched": len(late),
            "dispatch_lag_p99_ms": round(float(np.percentile(lags, 99)), 3) if len(lags) else None,
        }
