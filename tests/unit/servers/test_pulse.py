"""Busy is not stuck: what a pulse says of an engine at work."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from modelops.protocols import State
from modelops_servers import pulse as pulse_module
from modelops_servers.pulse import PROGRESS_SECONDS, Pulse


class Clock:
    """The module's ``time``, which passes only as told; both clocks are one here."""

    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=clock, time=clock))
    return clock


@pytest.fixture
def pulse(clock: Clock) -> Pulse:
    made = Pulse()
    made.set_state("ready", "on cpu")
    return made


def call(pulse: Pulse, clock: Clock, seconds: float, waiting: int = 0) -> None:
    pulse.began(clock.now, waiting, 1)
    clock.now += seconds
    pulse.ended(clock.now)


def test_it_loads_until_it_is_told_otherwise(clock: Clock) -> None:
    pulse = Pulse()
    began = clock.now
    clock.now += 100
    health = pulse.health()
    assert (health.state, health.since, health.last_progress) == ("loading", began, None)
    pulse.set_state("ready", "on cpu")
    assert pulse.health().state == "ready"
    assert pulse.health().since == clock.now


def test_idle_for_a_week_is_ready(pulse: Pulse, clock: Clock) -> None:
    since = clock.now
    clock.now += 7 * 24 * 3600
    assert pulse.health(0).state == "ready"
    assert pulse.health().since == since


def test_one_long_call_that_nobody_waits_behind_is_ready(pulse: Pulse, clock: Clock) -> None:
    pulse.began(clock.now, 0, 1)
    clock.now += 24 * 3600
    assert pulse.health().state == "ready"


def test_calls_in_a_row_with_a_full_queue_are_ready(pulse: Pulse, clock: Clock) -> None:
    for _ in range(200):
        pulse.began(clock.now, 500, 1)
        clock.now += 20
        assert pulse.health().state == "ready"
        pulse.ended(clock.now)


def test_a_call_without_end_while_others_wait_is_stuck_and_heals(
    pulse: Pulse, clock: Clock
) -> None:
    call(pulse, clock, 1)
    progress = clock.now
    pulse.began(clock.now, 3, 1)
    clock.now += PROGRESS_SECONDS - 1
    assert pulse.health().state == "ready"
    clock.now += 3
    health = pulse.health()
    assert health.state == "stuck"
    assert "for 32 s while 3 wait" in health.why
    assert health.since == clock.now - 2
    assert health.last_progress == progress
    assert pulse.report()["state"] == "stuck"
    pulse.ended(clock.now)
    assert pulse.health().state == "ready"
    assert pulse.health().last_progress == clock.now


def test_a_call_is_not_stuck_before_ten_times_the_slowest(pulse: Pulse, clock: Clock) -> None:
    call(pulse, clock, 10)
    pulse.began(clock.now, 1, 1)
    clock.now += 99
    assert pulse.health().state == "ready"
    clock.now += 2
    assert pulse.health().state == "stuck"


@pytest.mark.parametrize(("in_flight", "state"), [(1, "ready"), (2, "stuck")])
def test_whoever_knows_better_says_how_many_are_in_flight(
    pulse: Pulse, clock: Clock, in_flight: int, state: State
) -> None:
    pulse.began(clock.now, 7, 1)
    clock.now += PROGRESS_SECONDS + 1
    assert pulse.health(in_flight).state == state


def test_what_has_come_but_is_not_read_waits_too(pulse: Pulse, clock: Clock) -> None:
    pulse.began(clock.now, 0, 1)
    clock.now += PROGRESS_SECONDS + 1
    assert pulse.health().state == "ready"
    pulse.unread = lambda: True
    health = pulse.health()
    assert health.state == "stuck"
    assert "while others wait" in health.why


def test_a_call_that_ends_while_it_is_judged_is_not_stuck(pulse: Pulse, clock: Clock) -> None:
    pulse.began(clock.now, 0, 1)
    clock.now += PROGRESS_SECONDS + 1

    def unread() -> bool:
        pulse.ended(clock.now)
        return True

    pulse.unread = unread
    assert pulse.health().state == "ready"


@pytest.mark.parametrize("state", ["loading", "failed", "stopping", "stopped"])
def test_only_who_is_ready_can_be_stuck(pulse: Pulse, clock: Clock, state: State) -> None:
    pulse.set_state(state, "so it is")
    pulse.began(clock.now, 9, 1)
    clock.now += 1000
    health = pulse.health()
    assert (health.state, health.why) == (state, "so it is")


def test_a_stuck_call_is_not_forgotten_when_nobody_waits_behind_it_any_more(
    pulse: Pulse, clock: Clock
) -> None:
    pulse.began(clock.now, 4, 1)
    clock.now += PROGRESS_SECONDS + 1
    assert pulse.health().state == "stuck"
    # Another lane works on, and no more requests come: nobody is sent to what is stuck.
    other = threading.Thread(target=call, args=(pulse, clock, 1))
    other.start()
    other.join()
    assert pulse.health().state == "stuck"
    assert pulse.health(1).state == "stuck"
    pulse.ended(clock.now)
    assert pulse.health().state == "ready"


def test_each_thread_has_a_call_of_its_own(pulse: Pulse, clock: Clock) -> None:
    pulse.began(clock.now, 0, 3)
    clock.now += PROGRESS_SECONDS + 1
    other = threading.Thread(target=call, args=(pulse, clock, 1))
    other.start()
    other.join()
    assert pulse.health(3).state == "ready"
    assert "while 2 wait" in pulse.health(5).why
    pulse.ended(clock.now)
    assert pulse.health(5).state == "ready"


def test_an_end_without_a_beginning_is_progress_and_no_more(pulse: Pulse, clock: Clock) -> None:
    pulse.ended(clock.now)
    assert pulse.health().last_progress == clock.now


def test_it_can_be_asked_from_another_thread_at_any_moment() -> None:
    pulse = Pulse(progress_seconds=0.0)
    pulse.set_state("ready", "on cpu")
    states: set[str] = set()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            states.add(pulse.health().state)

    asker = threading.Thread(target=ask)
    asker.start()
    for n in range(5000):
        pulse.began(float(n), 1, 1)
        pulse.ended(float(n))
    done.set()
    asker.join()
    assert states <= {"ready", "stuck"}
