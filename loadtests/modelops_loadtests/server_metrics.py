"""What the server says of itself while it is loaded: its ``/metrics``, looked at once a second.

A thread of the parent process looks; the load generator has no part in it. Of all that a server
tells, a handful is kept: what queues, what runs, how large batches are, how full the KV cache is.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

from modelops_loadtests import exposition

EVERY_SECONDS = 1.0
_PATIENCE = 3.0
_MOST_BYTES = 8 << 20
_MOST_SHARE = 0.02
"""Of one core: a server with megabytes of metrics is looked at less often instead."""
_MOST_SERIES = 8
"""Of one family: models, or what a server calls so."""

_MOST_KEYS = 200

Kind = Literal["sum", "most", "rate", "mean", "share"]


class Family(NamedTuple):
    """A figure to keep, and how it is made of what the server counts.

    ``sum`` and ``most`` are of the values at the moment, ``rate`` is of a counter, per second;
    ``mean`` is a histogram's, of what was observed since the look before; ``share`` is of two
    counters' growth. ``label`` tells apart what is drawn apart, within a model.
    """

    title: str
    panel: str
    kind: Kind
    source: str
    scale: float = 1.0
    of: str = ""
    label: str = ""


FAMILIES = (
    Family("waiting in vLLM", "requests", "sum", "vllm:num_requests_waiting"),
    Family("running in vLLM", "requests", "sum", "vllm:num_requests_running"),
    Family("in flight at the gateway", "requests", "sum", "modelops_inflight_requests"),
    Family("rejected per second", "requests", "rate", "modelops_rejected_total"),
    Family("wait for the engine", "queue, ms", "mean", "modelops_queue_seconds", 1000),
    Family("wait in vLLM's queue", "queue, ms", "mean", "vllm:request_queue_time_seconds", 1000),
    Family("items a call", "batch", "mean", "modelops_batch_size"),
    Family("tokens a step", "batch", "mean", "vllm:iteration_tokens_total"),
    Family("KV cache in use", "KV cache, %", "most", "vllm:kv_cache_usage_perc", 100),
    Family("KV cache in use", "KV cache, %", "most", "modelops_kv_cache_usage_ratio", 100),
    Family(
        "prompt tokens found in it",
        *("KV cache, %", "share", "vllm:prefix_cache_hits_total", 100),
        of="vllm:prefix_cache_queries_total",
    ),
    Family("preempted per second", "KV cache, %", "rate", "vllm:num_preemptions_total"),
    Family("prompt tokens", "tokens/s", "rate", "vllm:prompt_tokens_total"),
    Family("completion tokens", "tokens/s", "rate", "vllm:generation_tokens_total"),
    Family("tokens", "tokens/s", "rate", "modelops_tokens_total", label="kind"),
)


def _names(family: Family) -> tuple[str, ...]:
    if family.kind == "mean":
        return (f"{family.source}_sum", f"{family.source}_count")
    return (family.source, family.of) if family.of else (family.source,)


_WANTED = frozenset(name for family in FAMILIES for name in _names(family))
Key = tuple[str, str]
"""A model, and what the family's own label says."""
Look = dict[tuple[str, Key], float]
"""One look at a server: the value of each name and key."""


def look(body: bytes) -> Look:
    """Read one exposition; replicas, versions and reasons of a model are put together."""
    found: Look = {}
    own = {name: family.label for family in FAMILIES for name in _names(family) if family.label}
    most = {family.source for family in FAMILIES if family.kind == "most"}
    for point in exposition.read(body, _WANTED):
        model = point.labels.get("model", point.labels.get("model_name", ""))
        key = (point.name, (model, point.labels.get(own.get(point.name, ""), "")))
        if key not in found and len(found) >= _MOST_KEYS:
            continue
        before = found.get(key, 0.0)
        found[key] = max(before, point.value) if point.name in most else before + point.value
    return found


def series(looks: Iterable[tuple[float, Look]]) -> list[dict[str, Any]]:
    """Return what looks at a server show: for each family and model, its points over time.

    A row has ``title``, ``panel``, ``source`` (the metric's name), ``model`` and ``points`` of
    [seconds, value]. Families that never showed anything are left out; of ``vllm:…`` and the
    gateway's figure of the same, the engine's own is kept.
    """
    ordered = list(looks)
    keys: dict[str, dict[Key, None]] = {}
    for _, seen in ordered:
        for name, key in seen:
            keys.setdefault(name, {})[key] = None
    rows: list[dict[str, Any]] = []
    for family in FAMILIES:
        for key in list(keys.get(_names(family)[-1], ()))[:_MOST_SERIES]:
            points = _points(family, key, ordered)
            model, label = key
            title = f"{label} {family.title}" if label else family.title
            known = any(r["title"] == title and r["model"] == model for r in rows)
            if any(value for _, value in points) and not known:
                rows.append(
                    {
                        "title": title,
                        "panel": family.panel,
                        "source": family.source,
                        "model": model,
                        "points": points,
                    }
                )
    return rows


def _points(family: Family, key: Key, looks: list[tuple[float, Look]]) -> list[list[float]]:
    points: list[list[float]] = []
    before: tuple[float, Look] | None = None
    for at, seen in looks:
        value = _value(family, key, (at, seen), before)
        if value is not None:
            points.append([round(at, 3), round(value * family.scale, 4)])
        before = (at, seen)
    return points


def _value(
    family: Family, key: Key, now: tuple[float, Look], before: tuple[float, Look] | None
) -> float | None:
    at, seen = now
    if family.kind in ("sum", "most"):
        return seen.get((family.source, key))
    if before is None:
        return None
    if family.kind == "rate":
        grown = _grown(family.source, key, seen, before[1])
        return None if grown is None or at <= before[0] else grown / (at - before[0])
    top, bottom = _names(family)
    part, whole = (_grown(name, key, seen, before[1]) for name in (top, bottom))
    return None if part is None or not whole else part / whole


def _grown(name: str, key: Key, now: Look, before: Look) -> float | None:
    """Return by how much a counter grew; None where it is new or began anew."""
    old, new = before.get((name, key)), now.get((name, key))
    return None if old is None or new is None or new < old else new - old


@dataclass
class ServerMetrics:
    """Looks at the Prometheus text at ``url`` while it is open; never raises.

    A server that has none, or refuses, is asked once and no more: ``result`` says so.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    every: float = EVERY_SECONDS
    patience: float = _PATIENCE
    _looks: list[tuple[float, Look]] = field(default_factory=list)
    _why: str | None = None
    _missed: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._run, name="server-metrics", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(timeout=1.0)  # a server that hangs is not waited for

    def result(self, zero: float) -> dict[str, Any]:
        """Return what was seen, in seconds since ``zero``, a moment of ``time.perf_counter``.

        ``why`` says why there is nothing, or None; ``series`` is that of ``series``; ``looks`` and
        ``missed`` count answers, and questions without one.
        """
        looks = [(at - zero, seen) for at, seen in list(self._looks)]
        rows = series(looks)
        why = self._why
        if why is None and not rows:
            why = "its /metrics show nothing of a model's load" if looks else "it did not answer"
        return {"why": why, "looks": len(looks), "missed": self._missed, "series": rows}

    def _run(self) -> None:
        parts = urlsplit(self.url)
        https = parts.scheme == "https"
        kind = http.client.HTTPSConnection if https else http.client.HTTPConnection
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        while not self._over.is_set() and self._why is None:
            began, used = time.perf_counter(), time.thread_time()
            connection = kind(parts.hostname or "", parts.port, timeout=self.patience)
            try:
                body = self._ask(connection, target)
                if body is not None:
                    at = (began + time.perf_counter()) / 2
                    self._looks.append((at, look(body)))
            except (OSError, http.client.HTTPException, ValueError):
                self._missed += 1
            finally:
                connection.close()
            cost = time.thread_time() - used
            pause = max(self.every - (time.perf_counter() - began), cost / _MOST_SHARE, 0.05)
            self._over.wait(pause)

    def _ask(self, connection: http.client.HTTPConnection, path: str) -> bytes | None:
        """Return the exposition; None, and ``_why``, where there is none to be had."""
        until = time.perf_counter() + self.patience
        connection.request("GET", path, headers={**self.headers, "Accept": "text/plain"})
        response = connection.getresponse()
        if response.status != 200:
            if response.status in (429, 503):  # the load itself
                raise http.client.HTTPException(f"{response.status}")
            self._why = f"GET {path} answered {response.status}"
            return None
        pieces, size = [], 0
        while piece := response.read1(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_BYTES:
                self._why = f"its /metrics are longer than {_MOST_BYTES >> 20} MB"
                return None
            if time.perf_counter() > until or self._over.is_set():
                raise TimeoutError
        return b"".join(pieces)
