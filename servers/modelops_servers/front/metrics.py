"""Prometheus metrics with bounded labels, and children looked up once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    Metric,
    PlatformCollector,
    ProcessCollector,
    Summary,
    generate_latest,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

OTHER = "other"
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
)  # fmt: skip
_GAP_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15,
    0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10,
)  # fmt: skip
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Now(NamedTuple):
    """How one model is at this moment, read whenever somebody scrapes."""

    model: str
    in_flight: int
    ready: bool
    restarts: int


class Metrics:
    """One registry for one front; model labels are those ``of`` was asked for, and ``other``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.now: Callable[[], Iterable[Now]] = tuple
        """Says how every model is; the gauges are read from it."""
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._names: set[str] = set()
        self._models: dict[tuple[str, str], ModelMetrics] = {}
        self._texts: dict[str, TextMetrics] = {}
        self.registry.register(_Gauges(self))
        self.registry.register(_Gaps(self._texts))
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
        # No histograms: a version more at every reload must not be a hundred series more.
        self._seconds_of_version = Summary(
            "modelops_version_seconds",
            "Times of one version's requests: answered (success), not answered (fail), waited "
            "for the engine (queue).",
            ("model", "version", "part"),
            registry=self.registry,
        )
        self._batch_of_version = Summary(
            "modelops_version_batch_size",
            "Items that one version's engine answered in one call.",
            ("model", "version"),
            registry=self.registry,
        )
        self._tokens = Counter(
            "modelops_tokens_total",
            "Tokens that models read (prompt) and wrote (completion).",
            ("model", "kind"),
            registry=self.registry,
        )
        self._rejected = Counter(
            "modelops_rejected_total",
            "Requests turned away before the engine saw them.",
            ("model", "reason"),
            registry=self.registry,
        )
        self._first_token = Histogram(
            "modelops_time_to_first_token_seconds",
            "From the request's headers to the first token of its stream.",
            ("model",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._unknown = Counter(
            "modelops_prompts_uncounted_total",
            "Requests whose prompt's tokens nobody could say.",
            ("model",),
            registry=self.registry,
        )
        self._durations: dict[tuple[str, str, int], Callable[[float], None]] = {}

    def request(
        self, model: str, route: str, status: int, seconds: float, version: str = ""
    ) -> None:
        """Count one finished request; a model that is not configured counts as ``other``."""
        of_version = self._models.get((model, version))
        if of_version is not None:
            of_version.request(status, seconds)
        key = (model if model in self._names else OTHER, route, status)
        observe = self._durations.get(key)
        if observe is None:
            observe = self._durations[key] = self._duration.labels(*map(str, key)).observe
        observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count a request turned away for no one model's sake; ``reason`` is one of a few words."""
        self._rejected.labels(OTHER, reason).inc()

    def of(self, model: str, version: str) -> ModelMetrics:
        """Return the children of one version of a model of the configuration."""
        found = self._models.get((model, version))
        if found is None:
            self._names.add(model)
            seconds = self._seconds_of_version.labels
            found = self._models[model, version] = ModelMetrics(
                queue=(self._queue.labels(model), seconds(model, version, "queue")),
                batch=(self._batch.labels(model), self._batch_of_version.labels(model, version)),
                success=seconds(model, version, "success"),
                fail=seconds(model, version, "fail"),
                tokens=self._tokens.labels(model, "prompt"),
                rejected=lambda reason: self._rejected.labels(model, reason).inc(),
            )
        return found

    def text(self, model: str) -> TextMetrics:
        """Return what a text model counts beyond ``of``, from the first call on."""
        found = self._texts.get(model)
        if found is None:
            self._names.add(model)
            found = self._texts[model] = TextMetrics(
                prompt=self._tokens.labels(model, "prompt"),
                completion=self._tokens.labels(model, "completion"),
                first_token=self._first_token.labels(model),
                unknown=self._unknown.labels(model),
            )
        return found

    def render(self) -> bytes:
        """Return the text exposition."""
        return generate_latest(self.registry)


class _Gauges(Collector):
    """What is not counted but looked up."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the state of every model."""
        in_flight = GaugeMetricFamily(
            "modelops_inflight_requests",
            "Requests that wait or are being answered.",
            labels=("model",),
        )
        ready = GaugeMetricFamily(
            "modelops_engine_ready", "1 where the model is ready.", labels=("model",)
        )
        restarts = CounterMetricFamily(
            "modelops_engine_restarts",
            "Times that an engine host was started anew.",
            labels=("model",),
        )
        for now in self._metrics.now():
            in_flight.add_metric((now.model,), now.in_flight)
            ready.add_metric((now.model,), float(now.ready))
            restarts.add_metric((now.model,), now.restarts)
        yield from (in_flight, ready, restarts)


class ModelMetrics:
    """What one version of a model counts; a ``modelops_servers.front.replica.Observer``.

    ``queue`` and ``batch`` are the model's and the version's own.
    """

    def __init__(
        self,
        *,
        queue: tuple[Histogram, Summary],
        batch: tuple[Histogram, Summary],
        success: Summary,
        fail: Summary,
        tokens: Counter,
        rejected: Callable[[str], None],
    ) -> None:
        self._queue = queue
        self._batch = batch
        self._success = success
        self._fail = fail
        self.tokens = tokens.inc
        self._rejected = rejected

    def request(self, status: int, seconds: float) -> None:
        """A request for this version is over."""
        (self._success if status == 200 else self._fail).observe(seconds)

    def queued(self, seconds: float) -> None:
        """A request waited this long for the engine."""
        for one in self._queue:
            one.observe(seconds)

    def batch(self, size: int) -> None:
        """The engine answered this many items in one call."""
        for one in self._batch:
            one.observe(size)

    def rejected(self, reason: str) -> None:
        """A request was turned away before the engine saw it."""
        self._rejected(reason)


class TextMetrics:
    """What one text model counts."""

    def __init__(
        self, *, prompt: Counter, completion: Counter, first_token: Histogram, unknown: Counter
    ) -> None:
        self.prompt = prompt.inc
        self.completion = completion.inc
        self.first_token = first_token.observe
        self.unknown = unknown.inc
        self.gap_counts = [0] * (len(_GAP_SECONDS) + 1)
        self.gap_seconds = 0.0

    def gap(self, seconds: float, count: int) -> None:
        """``count`` tokens came, each ``seconds`` after the one before.

        On the way of every piece of every stream: a histogram's own lock and search cost more
        than all the rest that is counted there.
        """
        self.gap_counts[bisect_left(_GAP_SECONDS, seconds)] += count
        self.gap_seconds += seconds * count


class _Gaps(Collector):
    """The histogram of the gaps between tokens."""

    def __init__(self, models: dict[str, TextMetrics]) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        """Yield it, once there is a text model."""
        family = HistogramMetricFamily(
            "modelops_inter_token_latency_seconds",
            "Between one token of a stream and the next; tokens that come together share a gap.",
            labels=("model",),
        )
        for model, metrics in self._models.items():
            sums = accumulate(metrics.gap_counts)
            bounds = (*map(str, map(float, _GAP_SECONDS)), "+Inf")
            family.add_metric((model,), list(zip(bounds, sums, strict=True)), metrics.gap_seconds)
        if self._models:
            yield family
