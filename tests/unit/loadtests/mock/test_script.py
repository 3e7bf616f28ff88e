from __future__ import annotations

import pytest

from modelops_loadtests.mock import Script
from modelops_loadtests.mock.command import parser
from modelops_loadtests.mock.process import _options


def test_what_is_drawn_follows_from_the_seed_and_the_requests_number() -> None:
    script = Script(ttft_ms="10..30", interval_ms=5)
    drawn = [script.times(n).ttft for n in range(200)]
    assert drawn == [Script(ttft_ms="10..30").times(n).ttft for n in range(200)]
    assert drawn != [Script(ttft_ms="10..30", seed=1).times(n).ttft for n in range(200)]
    assert min(drawn) >= 0.010
    assert max(drawn) <= 0.030
    assert max(drawn) - min(drawn) > 0.015
    assert script.times(3).interval == 0.005


def test_the_last_of_each_so_many_is_the_outlier_and_the_first_has_the_fault() -> None:
    script = Script(ttft_ms=10, outlier_every=3, outlier_factor=20, fault="error", fault_every=2)
    assert [round(script.times(n).ttft, 6) for n in range(4)] == [0.01, 0.01, 0.2, 0.01]
    assert [script.fault_of(n) for n in range(4)] == ["error", "", "error", ""]


def test_headers_later_than_the_first_token_delay_it() -> None:
    assert Script(headers_ms=100, ttft_ms=20).times(0).ttft == 0.1


@pytest.mark.parametrize(
    "fields",
    [
        {"ttft_ms": "soon"},
        {"ttft_ms": "30..10"},
        {"interval_ms": -1},
        {"fault": "gremlins"},
        {"tokens_per_chunk": 0},
        {"concurrency": -1},
    ],
)
def test_what_cannot_be_meant_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(fields)).split("_")[0] + "|cannot"):
        Script(**fields)  # type: ignore[arg-type]


def test_a_script_survives_the_command_line() -> None:
    script = Script(
        tokens=7, ttft_ms="1..2", role_chunk=False, continuous_usage=True, fault="cut", seed=3
    )
    told = vars(parser().parse_args(_options(script)))
    assert Script(**{name: told[name] for name in script.as_dict()}) == script
