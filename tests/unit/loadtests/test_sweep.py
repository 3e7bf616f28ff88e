from __future__ import annotations

from collections.abc import Callable

import pytest

from modelops_loadtests.load.sweep import StageSeen, Sweep, highest_within, knee, next_load, over


def swept(text: str, serve: Callable[[float], StageSeen]) -> tuple[Sweep, list[StageSeen]]:
    sweep, seen = Sweep.model_validate(text), list[StageSeen]()
    while (load := next_load(sweep, seen)) is not None:
        seen.append(serve(load))
    return sweep, seen


def open_server(capacity: float, slo: float | None = None) -> Callable[[float], StageSeen]:
    def serve(load: float) -> StageSeen:
        verdict = None if slo is None else ("PASS" if load <= slo else "FAIL")
        return StageSeen(load, min(load, capacity), 100.0, offered=load, verdict=verdict)

    return serve


def test_the_knee_of_an_open_loop_is_found_and_looked_at_closely() -> None:
    sweep, seen = swept("rate=1..1000", open_server(capacity=22.0))
    assert over(sweep, seen) == "two stages in a row answered fewer requests than came"
    assert max(stage.load for stage in seen) == 64
    found = knee(sweep, seen)
    assert found is not None
    assert 20 <= found["load"] <= 23.1
    assert "were answered" in found["why"]
    assert len(seen) <= 12


def test_with_objectives_the_bracket_is_around_what_meets_them() -> None:
    sweep, seen = swept("rate=1..64", open_server(capacity=40.0, slo=11.0))
    found = highest_within(seen)
    assert found is not None
    assert 10 <= found["load"] <= 11
    assert "verdict was FAIL" in found["why"]
    assert knee(sweep, seen) == {
        "load": 32,
        "throughput": 32,
        "why": "at 64/s only 40/s of 64/s were answered",
    }


def test_loads_that_are_listed_are_taken_as_they_are() -> None:
    _, seen = swept("rate=1,5,9", open_server(capacity=100.0))
    assert [stage.load for stage in seen] == [1, 5, 9]


def test_a_sweep_ends_where_its_generator_cannot_be_believed() -> None:
    def serve(load: float) -> StageSeen:
        return StageSeen(load, load, 10.0, offered=load, valid=load < 8)

    sweep, seen = swept("rate=1,2,4,8,16,32", serve)
    assert [stage.load for stage in seen] == [1, 2, 4, 8, 16]
    assert "cannot be believed" in str(over(sweep, seen))
    found = knee(sweep, seen)
    assert found is not None
    assert (found["load"], found["why"]) == (
        None,
        "every load up to 4/s was answered as fast as it came",
    )


def test_the_knee_of_a_closed_loop_is_where_power_is_greatest() -> None:
    # Eight at a time in 100 ms each: more users only wait.
    sweep, seen = swept(
        "users=1..512", lambda n: StageSeen(n, min(n, 8.0) / 0.1, 10.0, verdict=None)
    )
    assert "less than 5 %" in str(over(sweep, seen))
    found = knee(sweep, seen)
    assert found is not None
    assert (found["load"], found["throughput"]) == (8, 80)
    assert all(stage.load == int(stage.load) for stage in seen)


def stages(verdicts: dict[float, str]) -> list[StageSeen]:
    return [StageSeen(x, x, 10.0, offered=x, verdict=v) for x, v in verdicts.items()]


@pytest.mark.parametrize(
    ("verdicts", "load", "why"),
    [
        ({1: "PASS", 2: "FAIL", 4: "PASS"}, 1, "at 2 the verdict was FAIL"),
        # Low rates have too few samples to decide: they do not speak against a higher one.
        ({1: "INCONCLUSIVE", 2: "PASS", 4: "INCONCLUSIVE"}, 2, "at 4 the verdict was INCONCLUSIVE"),
        ({1: "PASS", 2: "PASS"}, 2, "it was the highest tried"),
        ({1: "FAIL", 2: "PASS"}, None, ""),
        ({1: "INCONCLUSIVE"}, None, ""),
        ({}, None, ""),
    ],
)
def test_the_highest_load_within_the_objectives_has_no_failing_one_below(
    verdicts: dict[float, str], load: float | None, why: str
) -> None:
    expected = None if load is None else {"load": load, "why": why}
    assert highest_within(stages(verdicts)) == expected


def test_a_stage_that_cannot_be_believed_says_nothing() -> None:
    odd = StageSeen(2.0, 2.0, 10.0, offered=2.0, verdict="FAIL", valid=False)
    found = highest_within([*stages({1: "PASS", 4: "PASS"}), odd])
    assert found is not None
    assert found["load"] == 4


@pytest.mark.parametrize(("missing", "follows"), [(3, True), (4, False)])
def test_a_few_requests_in_flight_are_not_saturation(missing: int, follows: bool) -> None:
    stage = StageSeen(2.0, (20 - missing) / 10, 10.0, offered=2.0)
    assert stage.follows is follows
