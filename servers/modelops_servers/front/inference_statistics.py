"""A model's statistics in the protocol's form, out of the metrics of all fronts."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from modelops_servers.front.models import Model


def statistics(model: Model, exposition: str, number: str | None = None) -> list[dict[str, Any]]:
    """Return one entry for version ``number``, or for each version.

    The counts are the model's, of all versions together.
    """
    said: dict[str, float] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.labels.get("model") != model.name or "le" in sample.labels:
                continue
            name = sample.name
            if name.startswith("modelops_request_duration_seconds"):
                good = sample.labels["status"] == "200"
                name = ("good" if good else "bad") + name.removeprefix(
                    "modelops_request_duration_seconds"
                )
            said[name] = said.get(name, 0.0) + sample.value
    return [
        {
            "name": model.name,
            "version": version.number,
            "last_inference": int((version.standing().last_progress or 0) * 1000),
            "inference_count": int(said.get("modelops_batch_size_sum", 0)),
            "execution_count": int(said.get("modelops_batch_size_count", 0)),
            "inference_stats": {
                "success": _span(said, "good"),
                "fail": _span(said, "bad"),
                "queue": _span(said, "modelops_queue_seconds"),
            },
        }
        for version in model.versions.values()
        if number in (None, version.number)
    ]


def _span(said: dict[str, float], name: str) -> dict[str, int]:
    return {
        "count": int(said.get(f"{name}_count", 0)),
        "ns": int(said.get(f"{name}_sum", 0) * 1e9),
    }
