"""Prometheus metrics with bounded labels, and children looked up once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from modelops_servers.model import ServedModel

OTHER = "other"
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
)  # fmt: skip
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One registry for one gateway; ``models`` are the only model labels beside ``other``."""

    def __init__(self, models: Iterable[str]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._models = frozenset(models)
        self._duration = Histogram(
            "modelops_request_duration_seconds",
            "From the request's headers to the last byte of its answer.",
            ("model", "route", "status"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._queue = Histogram(
            "modelops_queue_seconds",
            "How long a request waited for the engine.",
            ("model",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._batch = Histogram(
            "modelops_batch_size",
            "Items that the engine answered in one call.",
            ("model",),
            buckets=_SIZES,
            registry=self.registry,
        )
        self._in_flight = Gauge(
            "modelops_inflight_requests",
            "Requests that wait or are being answered.",
            ("model",),
            registry=self.registry,
        )
        self._tokens = Counter(
            "modelops_tokens_total",
            "Tokens that models read.",
            ("model", "kind"),
            registry=self.registry,
        )
        self._rejected = Counter(
            "modelops_rejected_total",
            "Requests turned away before the engine saw them.",
            ("model", "reason"),
            registry=self.registry,
        )
        self._ready = Gauge(
            "modelops_engine_ready",
            "1 where the model is ready.",
            ("model",),
            registry=self.registry,
        )
        self._durations: dict[tuple[str, str, int], Callable[[float], None]] = {}

    def request(self, model: str, route: str, status: int, seconds: float) -> None:
        """Count one finished request; a model that is not configured counts as ``other``."""
        key = (model if model in self._models else OTHER, route, status)
        observe = self._durations.get(key)
        if observe is None:
            observe = self._durations[key] = self._duration.labels(*map(str, key)).observe
        observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a request turned away for no one model's sake; ``reason`` is one of a few words."""
        self._rejected.labels(OTHER, reason).inc()

    def of(self, model: str) -> ModelMetrics:
        """Return the children of one configured model."""
        assert model in self._models  # noqa: S101 - labels are bounded by the config
        return ModelMetrics(
            queue=self._queue.labels(model),
            batch=self._batch.labels(model),
            tokens=self._tokens.labels(model, "prompt"),
            rejected=lambda reason: self._rejected.labels(model, reason).inc(),
        )

    def watch(self, name: str, model: ServedModel) -> None:
        """Read two gauges from the model itself whenever somebody scrapes."""
        self._in_flight.labels(name).set_function(lambda: model.in_flight)
        self._ready.labels(name).set_function(lambda: float(model.health().state == "ready"))

    def render(self) -> bytes:
        """Return the text exposition."""
        return generate_latest(self.registry)


class ModelMetrics:
    """What one model counts; a ``modelops_servers.model.Observer``."""

    def __init__(
        self,
        *,
        queue: Histogram,
        batch: Histogram,
        tokens: Counter,
        rejected: Callable[[str], None],
    ) -> None:
        self.queued = queue.observe
        self._batch = batch
        self.tokens = tokens.inc
        self._rejected = rejected

    def batch(self, size: int) -> None:
        """The engine answered this many items in one call."""
        self._batch.observe(size)

    def rejected(self, reason: str) -> None:
        """A request was turned away before the engine saw it."""
        self._rejected(reason)
