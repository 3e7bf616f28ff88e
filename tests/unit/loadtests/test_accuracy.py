from __future__ import annotations

import numpy as np
import pytest

from modelops_loadtests.accuracy import errors, outside, spread
from modelops_loadtests.samples import Sample, SampleTable


def test_an_error_is_the_distance_from_what_both_stamps_allow() -> None:
    low, high = np.array([1.0, 1.0, 1.0]), np.array([1.2, 1.2, 1.2])
    found = outside(np.array([0.7, 1.1, 1.5]), low, high)
    assert found == pytest.approx([-0.3, 0, 0.3])


def test_streams_are_set_beside_their_own_stamps() -> None:
    def sample(number: int, first: float, chunks: list[float], outcome: str = "ok") -> Sample:
        return Sample(
            sent=10.0, end=11.0, outcome=outcome,  # type: ignore[arg-type]
            process=1, number=number, first_token=first, chunk_at=chunks,
        )  # fmt: skip

    def record(name: str, wrote: list[float]) -> dict[str, object]:
        return {"id": name, "arrived": 510.0, "writing": wrote, "wrote": wrote}

    samples = SampleTable.of(
        [
            sample(1, 10.103, [10.103, 10.2]),
            sample(0, 10.1, [10.1, 10.12, 10.15]),
            sample(2, 10.1, [10.1, 10.2, 10.3]),
            sample(3, 10.1, [10.1], "error"),
            sample(9, 10.1, [10.1]),
        ]
    )
    found = errors(samples, [
        record("r-1-0", [510.1, 510.12, 510.14]),
        record("r-1-1", [510.1, 510.2]),
        record("r-1-2", [510.1, 510.2]),
        record("r-1-3", [510.1]),
        {"id": None, "arrived": 510.0, "writing": [], "wrote": []},
    ])  # fmt: skip
    assert found.ttft == pytest.approx([0.003, 0], abs=1e-9)
    assert found.itl == pytest.approx([-0.003, 0, 0.01], abs=1e-9)
    assert found.unmatched == 2


def test_the_spread_of_none_is_none_and_of_some_of_their_sizes() -> None:
    assert spread(np.empty(0)) == {"p50": None, "p99": None}
    assert spread(np.array([-0.004, 0.002, 0.001]))["p50"] == pytest.approx(2)
