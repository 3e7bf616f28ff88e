"""A model's statistics in the protocol's form, out of the metrics of all fronts."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from modelops_servers.front.models import Model
from modelops_servers.front.served import Served

_SECONDS = "modelops_version_seconds"
_BATCH = "modelops_version_batch_size"


def statistics(model: Model, exposition: str, number: str | None = None) -> list[dict[str, Any]]:
    """Return one entry for version ``number``, or for each version, each with its own counts."""
    counted: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(exposition):
        if family.name not in (_SECONDS, _BATCH):
            continue
        for sample in family.samples:
            labels = sample.labels
            if labels["model"] == model.name:
                said = counted.setdefault(labels["version"], {})
                said[sample.name.replace(family.name, labels.get("part", "batch"))] = sample.value
    return [
        _entry(model.name, version, counted.get(version.number, {}))
        for version in model.versions.values()
        if number in (None, version.number)
    ]


def _entry(name: str, version: Served[Any], said: dict[str, float]) -> dict[str, Any]:
    return {
        "name": name,
        "version": version.number,
        "last_inference": int((version.standing().last_progress or 0) * 1000),
        "inference_count": int(said.get("batch_sum", 0)),
        "execution_count": int(said.get("batch_count", 0)),
        "inference_stats": {part: _span(said, part) for part in ("success", "fail", "queue")},
    }


def _span(said: dict[str, float], name: str) -> dict[str, int]:
    return {
        "count": int(said.get(f"{name}_count", 0)),
        "ns": int(said.get(f"{name}_sum", 0) * 1e9),
    }
