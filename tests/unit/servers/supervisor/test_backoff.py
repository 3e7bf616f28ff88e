"""How long a restart waits: nothing after a good run, ever longer in a row of bad ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from modelops_servers.supervisor import backoff
from modelops_servers.supervisor.backoff import CAP_SECONDS, Backoff


class Clock:
    """The module's ``time``, which passes only as told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(backoff, "time", SimpleNamespace(monotonic=lambda: self.now))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def lives(delays: Backoff, clock: Clock, seconds: float) -> float:
    """Load, work for ``seconds``, end; return the delay."""
    delays.well()
    clock.now += seconds
    return delays.next()


def test_the_first_restart_is_at_once_and_the_next_ones_double_to_a_cap(clock: Clock) -> None:
    delays = Backoff()
    seen = [lives(delays, clock, 1) for _ in range(12)]
    assert seen[:5] == [0, 0.5, 1, 2, 4]
    assert seen == sorted(seen)
    assert seen[-1] == CAP_SECONDS
    assert max(lives(delays, clock, 1) for _ in range(2000)) == CAP_SECONDS


def test_a_long_good_run_forgives(clock: Clock) -> None:
    delays = Backoff()
    for _ in range(5):
        lives(delays, clock, 1)
    assert lives(delays, clock, 61) == 0
    assert lives(delays, clock, 1) == 0.5


def test_long_loading_that_fails_is_no_good_run(clock: Clock) -> None:
    delays = Backoff()
    seen = []
    for _ in range(4):
        clock.now += 90
        seen.append(delays.next())
    assert seen == [0, 0.5, 1, 2]


def test_an_earlier_good_run_does_not_forgive_twice(clock: Clock) -> None:
    delays = Backoff()
    assert lives(delays, clock, 100) == 0
    clock.now += 100
    assert delays.next() == 0.5
    clock.now += 100
    assert delays.next() == 1
