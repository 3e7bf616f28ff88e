"""How much padding a call is worth, from timings."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from modelops_servers.batching import DEFAULT_SLACK, padding_slack

SIZES = [1, 8, 32, 128, 256, 1024, 4096]


@given(st.floats(1e-5, 1e-2), st.floats(1e-7, 1e-3), st.integers(0, 9))
def test_it_is_half_of_the_break_even_and_bears_noise(fixed: float, each: float, seed: int) -> None:
    noise = np.random.default_rng(seed).uniform(0.95, 1.05, len(SIZES))
    timings = [(n, (fixed + each * n) * f) for n, f in zip(SIZES, noise, strict=True)]
    half = fixed / each / 2
    slack = padding_slack(timings)
    if 16 < half < 500:
        assert 0.5 * half - 2 <= slack <= 2 * half + 2
    assert slack >= DEFAULT_SLACK


def test_the_encoder_that_the_default_was_measured_at() -> None:
    """Milliseconds of MiniLM on two cores, at 1 × 8, 1 × 32, 8 × 32, 16 × 32 and 16 × 128."""
    timings = [(8, 4.7), (32, 8.8), (256, 50.2), (512, 90.1), (2048, 428.6)]
    assert padding_slack(timings) <= 2 * DEFAULT_SLACK


def test_other_work_on_the_machine_does_not_turn_it_off() -> None:
    """The same, measured while both cores were busy with something else."""
    assert padding_slack([(2, 3.8), (8, 5.8), (32, 14.3), (256, 114), (2048, 954)]) == DEFAULT_SLACK


def test_where_size_costs_nothing_lengths_do_not_matter() -> None:
    assert padding_slack([(8, 1.0), (4096, 1.0)]) > 10_000
    assert padding_slack([(8, 1.1), (4096, 1.0)]) > 10_000


def test_without_two_sizes_nothing_is_known() -> None:
    assert padding_slack([]) == padding_slack([(8, 1.0), (8, 2.0)]) == DEFAULT_SLACK
