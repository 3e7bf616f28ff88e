from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from modelops.errors import InputError, UsageError
from modelops_loadtests.load.arrivals import MAX_ARRIVALS, Schedule, arrivals
from modelops_loadtests.load.trace import read_trace


def gaps(schedule: Schedule) -> np.ndarray:
    return np.diff(schedule.at, prepend=0.0)


@pytest.mark.parametrize(("kind", "shape"), [("poisson", 1.0), ("gamma", 0.25), ("gamma", 4.0)])
def test_gaps_have_the_asked_distribution(kind: str, shape: float) -> None:
    made = arrivals(500, 30, kind=kind, burstiness=shape, seed=3)
    assert len(made) == pytest.approx(15_000, abs=4 * np.sqrt(15_000 / shape))
    law = stats.gamma(shape, scale=1 / (500 * shape))
    assert stats.kstest(gaps(made), law.cdf).pvalue > 0.01
    # And the test can tell: another shape does not pass it.
    assert stats.kstest(gaps(made), stats.gamma(1.3 * shape, scale=1 / (650 * shape)).cdf)[1] < 1e-6


def test_constant_gaps_are_constant() -> None:
    made = arrivals(8, 2, kind="constant")
    np.testing.assert_allclose(made.at, np.arange(1, 16) / 8)


@pytest.mark.parametrize("processes", [1, 2, 3, 7])
def test_processes_together_send_the_one_schedule(processes: int) -> None:
    whole = arrivals(50, 4, kind="gamma", burstiness=0.5, seed=1)
    parts = [arrivals(50, 4, kind="gamma", burstiness=0.5, seed=1).part(i, processes)
             for i in range(processes)]  # fmt: skip
    merged = np.concatenate([part.at for part in parts])
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    np.testing.assert_array_equal(merged[order], whole.at)
    np.testing.assert_array_equal(numbers[order], whole.numbers)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_a_longer_schedule_begins_with_the_shorter_one_and_stages_differ() -> None:
    short, long = arrivals(300, 20, seed=5), arrivals(300, 60, seed=5)
    np.testing.assert_array_equal(long.at[: len(short)], short.at)
    assert long.at[len(short)] >= 20
    assert not np.array_equal(arrivals(300, 20, seed=5, stage=1).at[:10], short.at[:10])
    assert not np.array_equal(arrivals(300, 20, seed=6).at[:10], short.at[:10])


def test_the_rate_grows_evenly_in_the_ramp() -> None:
    made = arrivals(1000, 12, ramp=10, seed=2)
    counts = np.histogram(made.at, bins=[0, 5, 10, 12])[0]
    # The integral of 100 t a second: 1250 in the first half, 3750 in the second.
    np.testing.assert_allclose(counts, [1250, 3750, 2000], rtol=0.1)
    assert made.count(0, 5) == counts[0]


def test_a_schedule_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="can be planned"):
        arrivals(1e6, MAX_ARRIVALS / 1e6 + 1)


def test_a_trace_is_read_with_its_lengths_from_its_first_arrival(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at": 7, "input_tokens": 3}\n\n{"at": 7.5, "output_tokens": 9}\n')
    made = read_trace(path)
    np.testing.assert_array_equal(made.at, [0, 0.5])
    assert made.input_tokens is not None
    assert made.output_tokens is not None
    assert (made.input_tokens.tolist(), made.output_tokens.tolist()) == ([3, 0], [0, 9])
    last = made.part(1, 2)
    assert last.output_tokens is not None
    assert (last.numbers.tolist(), last.output_tokens.tolist()) == ([1], [9])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 2: no JSON"),
        ("[1]", "line 2: no object with at"),
        ('{"input_tokens": 3}', "line 2: no object with at"),
        ('{"at": NaN}', "line 2: no JSON"),
        ('{"at": true}', "line 2: at is no time"),
        ('{"at": "1"}', "line 2: at is no time"),
        ('{"at": -1}', "line 2: at is no time"),
        ('{"at": 0.5}', "line 2: 0.5 s comes after 1 s"),
        ('{"at": 1e9}', "more than a week"),
        ('{"at": 2, "input_tokens": -4}', "line 2: input_tokens is no number of tokens"),
        ('{"at": 2, "input_tokens": 1.5}', "line 2: input_tokens"),
        ('{"at": 2, "output_tokens": 100000000}', "line 2: output_tokens"),
        ('{"at": 2, "timestamp": 3}', "line 2: unknown key 'timestamp'"),
        ('{"at": 2, "x": "' + "y" * 10_000 + '"}', "line 2 is longer"),
    ],
)
def test_a_trace_is_hostile_until_checked(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"at": 1}\n' + line + "\n")
    with pytest.raises(InputError, match=says):
        read_trace(path)


def test_a_trace_that_is_empty_or_not_there(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match="holds no request"):
        read_trace(tmp_path / "empty.jsonl")
    with pytest.raises(InputError, match="cannot read the trace"):
        read_trace(tmp_path / "none.jsonl")
