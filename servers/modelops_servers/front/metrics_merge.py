"""One exposition out of those of several fronts."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

# Every front says the same of these; all else is each front's own share.
_SAME = frozenset({"modelops_engine_ready", "modelops_engine_restarts"})
_OURS = "modelops_"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def merge(texts: Sequence[str]) -> bytes:
    """Return the sum of our own metrics; those of single processes mean nothing together."""
    families: dict[str, tuple[Metric, Samples]] = {}
    for text in texts:
        for family in text_string_to_metric_families(text):
            if not family.name.startswith(_OURS):
                continue
            _, sums = families.setdefault(family.name, (family, {}))
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                key = (sample.name, tuple(sorted(sample.labels.items())))
                if family.name in _SAME:
                    sums[key] = max(sums.get(key, 0.0), sample.value)
                else:
                    sums[key] = sums.get(key, 0.0) + sample.value
    registry = CollectorRegistry()
    registry.register(_Merged(families))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, families: dict[str, tuple[Metric, Samples]]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        """Return each family with its summed samples."""
        merged = []
        for family, sums in self._families.values():
            metric = Metric(family.name, family.documentation, family.type)
            for (name, labels), value in sums.items():
                metric.add_sample(name, dict(labels), value)
            merged.append(metric)
        return merged
