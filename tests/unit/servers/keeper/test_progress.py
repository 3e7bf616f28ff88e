"""Busy is not stuck, and idle is not; a hung engine is, whatever it was doing."""

from __future__ import annotations

import pytest

from modelops_servers.keeper.progress import (
    CANARY_SECONDS,
    PROGRESS_SECONDS,
    QUIET_SECONDS,
    SLOWEST_FACTOR,
    UNANSWERED_SECONDS,
    WORKING_SECONDS,
    Progress,
)


class Watched:
    """An engine that is looked at once a second, on a clock that passes as told."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.progress = Progress(self.now)
        self.step = 0
        self.progress.saw(self.now, self.step, 0)

    def spend(self, seconds: float, *, others: int, step_every: float | None = None) -> list[str]:
        """Let time pass; return what was said of it while it was stuck."""
        said = []
        began = self.now
        while self.now < began + seconds:
            self.now += 1
            if step_every is not None and (self.now - began) % step_every == 0:
                self.step += 1
            self.progress.saw(self.now, self.step, others)
            if (why := self.progress.stuck(self.now)) is not None:
                said.append(why)
        return said


@pytest.fixture
def engine() -> Watched:
    return Watched()


def test_an_idle_engine_that_answers_its_canary_is_never_stuck(engine: Watched) -> None:
    asked = 0
    for _ in range(600):
        assert engine.spend(1, others=0) == []
        if engine.progress.wants_canary(engine.now):
            asked += 1
            engine.progress.canary_began(engine.now)
            engine.progress.canary_ended(engine.now + 0.2, answered=True)
    assert asked == pytest.approx(600 / QUIET_SECONDS, rel=0.25)


def test_an_idle_engine_that_does_not_answer_one_is_stuck_within_seconds(engine: Watched) -> None:
    engine.spend(QUIET_SECONDS, others=0)
    assert engine.progress.wants_canary(engine.now)
    engine.progress.canary_began(engine.now)
    assert not engine.progress.wants_canary(engine.now + 100)
    assert engine.spend(CANARY_SECONDS, others=0) == []
    (why,) = engine.spend(1, others=0)
    assert "idle" in why


def test_it_is_well_again_once_the_canary_comes_back(engine: Watched) -> None:
    engine.progress.canary_began(engine.now)
    assert engine.spend(60, others=0)
    engine.progress.canary_ended(engine.now, answered=True)
    assert engine.spend(1, others=0) == []


def test_a_slow_engines_canary_has_longer(engine: Watched) -> None:
    engine.progress.canary_began(engine.now)
    engine.progress.canary_ended(engine.now + 3, answered=True)
    engine.now += 3
    engine.progress.canary_began(engine.now)
    assert engine.spend(3 * SLOWEST_FACTOR, others=0) == []
    assert engine.spend(1, others=0)


def test_a_canary_that_is_refused_is_asked_again_later(engine: Watched) -> None:
    engine.spend(QUIET_SECONDS, others=0)
    engine.progress.canary_began(engine.now)
    engine.progress.canary_ended(engine.now, answered=False)
    assert not engine.progress.wants_canary(engine.now + 1)
    assert engine.progress.wants_canary(engine.now + QUIET_SECONDS)


def test_an_engine_that_moves_is_never_stuck_however_much_there_is(engine: Watched) -> None:
    assert engine.spend(3600, others=500, step_every=20) == []


def test_a_hung_engine_with_work_is_stuck_after_its_time(engine: Watched) -> None:
    engine.spend(60, others=3, step_every=1)
    assert engine.spend(PROGRESS_SECONDS, others=3) == []
    assert "3 requests" in engine.spend(1, others=3)[0]


def test_one_that_hung_before_the_work_came_is_counted_from_then(engine: Watched) -> None:
    engine.spend(500, others=0)
    assert engine.spend(PROGRESS_SECONDS, others=1) == []
    assert engine.spend(2, others=1)


def test_a_long_prompt_after_another_long_one_is_busy(engine: Watched) -> None:
    """Ten times the longest that ended well, as for engines of tensors."""
    assert engine.spend(25, others=1) == []
    engine.step += 1
    assert engine.spend(200, others=1) == []
    assert engine.spend(60, others=1)


def test_one_long_step_that_is_seen_to_be_worked_on_is_busy(engine: Watched) -> None:
    """The first long prompt on a slow CPU: nothing moves for minutes, and a core is busy."""
    engine.progress.works(True)
    assert engine.spend(WORKING_SECONDS, others=6) == []
    assert engine.spend(2, others=6)


def test_work_that_ends_without_a_step_is_a_hang_at_once(engine: Watched) -> None:
    engine.progress.works(True)
    assert engine.spend(100, others=6) == []
    engine.progress.works(False)
    assert engine.spend(1, others=6)


def test_a_canary_that_is_being_worked_on_has_longer(engine: Watched) -> None:
    engine.progress.canary_began(engine.now)
    engine.progress.works(True)
    assert engine.spend(PROGRESS_SECONDS, others=0) == []
    assert engine.spend(1, others=0)


def test_while_others_have_requests_in_it_the_canary_waits_as_long_as_they(engine: Watched) -> None:
    engine.spend(QUIET_SECONDS, others=1)
    engine.progress.canary_began(engine.now)
    assert engine.spend(PROGRESS_SECONDS - QUIET_SECONDS - 1, others=1) == []
    assert engine.spend(3, others=1)


def test_work_that_goes_away_unfinished_leaves_nothing_behind(engine: Watched) -> None:
    engine.spend(20, others=1)
    engine.spend(1, others=0)
    assert engine.spend(PROGRESS_SECONDS - 2, others=1) == []


def test_metrics_without_an_answer_are_a_hung_server(engine: Watched) -> None:
    assert engine.progress.stuck(engine.now + UNANSWERED_SECONDS) is None
    assert "metrics" in (engine.progress.stuck(engine.now + UNANSWERED_SECONDS + 1) or "")


def test_time_in_which_nobody_looked_does_not_count(engine: Watched) -> None:
    engine.spend(10, others=1)
    engine.progress.canary_began(engine.now)
    engine.now += 3600
    engine.progress.slept(3600)
    assert engine.progress.stuck(engine.now) is None
    assert engine.spend(PROGRESS_SECONDS - 12, others=1) == []
    assert engine.spend(4, others=1)
