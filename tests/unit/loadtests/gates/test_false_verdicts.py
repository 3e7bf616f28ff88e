"""The stated confidence on synthetic runs; benchmarks/bench_gates.py has more, and its rivals."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy import signal, stats

from modelops_loadtests.gates.averages import mean_interval
from modelops_loadtests.gates.percentiles import ALPHA, percentile_interval
from modelops_loadtests.samples import Floats

RUNS, REQUESTS = 100, 1500
PHI = {"independent": 0.0, "correlated": 0.9}
TRUTH = {"p90": float(np.exp(0.5 * stats.norm.ppf(0.9))), "mean": float(np.exp(0.125))}
MOST = int(stats.binom.ppf(0.99, RUNS, 0.05))


@cache
def latencies(kind: str) -> Floats:
    """Lognormal of AR(1), in seconds; the percentiles are known."""
    phi = PHI[kind]
    noise = np.random.default_rng(7).standard_normal((RUNS, REQUESTS))
    noise[:, 1:] *= np.sqrt(1 - phi * phi)
    return np.asarray(np.exp(0.5 * signal.lfilter([1], [1, -phi], noise, axis=1)))


@cache
def intervals(kind: str, statistic: str) -> tuple[Floats, Floats]:
    """The lower and the upper end of each run's interval."""
    found = [
        mean_interval(run, ALPHA) if statistic == "mean" else percentile_interval(run, 90)
        for run in latencies(kind)
    ]
    return np.array([f.low for f in found]), np.array([f.high for f in found])


@pytest.mark.parametrize("kind", PHI)
@pytest.mark.parametrize("statistic", TRUTH)
def test_false_verdicts_are_as_rare_as_stated(kind: str, statistic: str) -> None:
    low, high = intervals(kind, statistic)
    assert np.count_nonzero(high <= 0.999 * TRUTH[statistic]) <= MOST  # PASS would be false
    assert np.count_nonzero(low > 1.001 * TRUTH[statistic]) <= MOST  # FAIL would be false


def test_what_is_clearly_so_is_said() -> None:
    low, high = intervals("correlated", "p90")
    assert np.count_nonzero(high <= 1.5 * TRUTH["p90"]) > 0.9 * RUNS
    assert np.count_nonzero(low > 0.7 * TRUTH["p90"]) > 0.9 * RUNS


def test_these_runs_would_show_an_interval_that_takes_them_for_independent() -> None:
    ordered = np.sort(latencies("correlated"), axis=1)
    rank = int(stats.binom.ppf(0.95, REQUESTS, 0.9))
    assert np.count_nonzero(ordered[:, rank] <= 0.999 * TRUTH["p90"]) > 2 * MOST
