"""Each version's statistics are its own, summed over all fronts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from modelops_servers.front.inference_statistics import statistics
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.metrics_merge import merge

ROUTE = "/v2/models/{model}/infer"


def model(*numbers: str) -> Any:
    standing = SimpleNamespace(last_progress=2.0)
    versions = {n: SimpleNamespace(number=n, standing=lambda: standing) for n in numbers}
    return cast(Any, SimpleNamespace(name="m", versions=versions))


def front() -> Metrics:
    """One front that has answered two versions of one model, and another model."""
    metrics = Metrics()
    for name, number, count in (("m", "1", 3), ("m", "2", 1), ("n", "1", 7)):
        own = metrics.of(name, number)
        for _ in range(count):
            own.queued(0.25)
            own.batch(4)
            metrics.request(name, ROUTE, 200, 0.5, number)
    metrics.request("m", ROUTE, 400, 0.125, "2")
    # Before a version is known, and of one that is not served: nobody's.
    metrics.request("m", ROUTE, 404, 9.0)
    metrics.request("m", ROUTE, 404, 9.0, "3")
    metrics.request("junk", ROUTE, 404, 9.0, "1")
    return metrics


@pytest.mark.parametrize("fronts", [1, 2])
def test_every_version_counts_its_own(fronts: int) -> None:
    text = front().render().decode()
    if fronts > 1:
        text = merge([text] * fronts).decode()
    first, second = statistics(model("1", "2"), text)
    assert first == {
        "name": "m",
        "version": "1",
        "last_inference": 2000,
        "inference_count": 12 * fronts,
        "execution_count": 3 * fronts,
        "inference_stats": {
            "success": {"count": 3 * fronts, "ns": 1_500_000_000 * fronts},
            "fail": {"count": 0, "ns": 0},
            "queue": {"count": 3 * fronts, "ns": 750_000_000 * fronts},
        },
    }
    assert second["inference_stats"]["success"] == {"count": fronts, "ns": 500_000_000 * fronts}
    assert second["inference_stats"]["fail"] == {"count": fronts, "ns": 125_000_000 * fronts}
    assert statistics(model("1", "2"), text, "2") == [second]


def test_a_version_that_nobody_asked_yet_counts_nothing() -> None:
    (entry,) = statistics(model("9"), front().render().decode())
    assert entry["inference_count"] == entry["execution_count"] == 0
    assert entry["inference_stats"]["success"] == {"count": 0, "ns": 0}


def test_the_models_own_metrics_are_of_all_versions_together() -> None:
    registry = front().registry
    value = registry.get_sample_value
    assert value("modelops_queue_seconds_count", {"model": "m"}) == 4
    assert value("modelops_batch_size_sum", {"model": "m"}) == 16
    labels = {"model": "m", "route": ROUTE, "status": "200"}
    assert value("modelops_request_duration_seconds_count", labels) == 4
    junk = [s for family in registry.collect() for s in family.samples if "junk" in str(s.labels)]
    assert junk == []
