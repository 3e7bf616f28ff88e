"""Silence counts only while somebody listens."""

from __future__ import annotations

import pytest

from modelops_servers.supervisor.silence import Silence, Watch


def test_a_watch_counts_what_it_sees() -> None:
    watch = Watch(100.0)
    assert watch.look(100.25) == 0.25
    assert watch.look(100.5) == 0.5


@pytest.mark.parametrize("away", [3.0, 3600.0])
def test_a_watch_that_was_away_counts_a_second_of_it_at_most(away: float) -> None:
    watch = Watch(100.0)
    before = watch.look(100.25)
    assert watch.look(100.25 + away) == before + 1
    assert watch.look(100.5 + away) == before + 1.25


def test_silence_begins_anew_with_every_word() -> None:
    silence = Silence()
    assert silence.seconds(5.0) == 0
    assert silence.seconds(9.0) == 4
    silence.heard()
    assert silence.seconds(11.0) == 0
    assert silence.seconds(12.5) == 1.5
