"""What text engines measure themselves, under the labels of the models that they serve.

Nothing is summed and no value is read: an engine's lines are passed on as they are, since parsing
hundreds of them would hold up the streams that share this loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from modelops.errors import ModelopsError
from modelops_servers.front.openai.served_text import TextReplica, TextVersion

_ANSWER_SECONDS = 1.0
_MOST_BYTES = 1 << 20
# Only what is well formed is passed on: one bad line, and the whole page could not be read.
_LABEL = r'\w+="(?:[^"\\\n]|\\[\\"n])*"'
_VALUE = r"[+-]?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|Inf)|NaN"
_LABELS = rf"(?:{_LABEL}(?:,{_LABEL})*,?)?"
_SAMPLE = re.compile(rf"(vllm:\w+)(?:\{{({_LABELS})\}})? ({_VALUE})\Z", re.ASCII)
_HEAD = re.compile(
    r"# (?:(HELP) (vllm:\w+) .*|(TYPE) (vllm:\w+) (?:counter|gauge|histogram|summary|untyped))\Z",
    re.ASCII,
)
_OURS = re.compile(r'(?:^|,)(?:model|version|replica)="')
# What the lines of a histogram add to the name of their family.
_PARTS = re.compile(r"_(?:bucket|count|sum)\Z")
_USE = "vllm:kv_cache_usage_perc"
_CACHE = {
    "bytes_per_value": "Bytes that the engine keeps of each value, by what it allocated.",
    "tokens": "Tokens that the engine's KV cache holds.",
    "usage_ratio": "How much of its KV cache the engine uses; 1 where all is taken.",
}


class Engine(NamedTuple):
    """One engine: its labels, what it says of its KV cache, and its own metrics, if any came."""

    labels: str
    cache: Mapping[str, Any]
    text: str


async def ask(versions: Iterable[TextVersion]) -> list[Engine]:
    """Ask every engine; one that has no metrics or does not answer in time has an empty text."""
    asked = []
    for version in versions:
        reached = {one.id: one for one in version.replicas}
        for index, (id, standing) in enumerate(version.standings.items()):
            labels = f'model="{version.name}",version="{version.number}",replica="{index}"'
            cache = standing.describe.get("kv_cache") or {}
            replica = reached.get(id) if version.tokenizes else None
            asked.append(_ask(labels, cache, replica))
    return await asyncio.gather(*asked)


async def _ask(labels: str, cache: Mapping[str, Any], replica: TextReplica | None) -> Engine:
    text = ""
    if replica is not None:
        with contextlib.suppress(ModelopsError):  # how it is, its readiness says
            text = await _text(replica)
    return Engine(labels, cache, text)


async def _text(replica: TextReplica) -> str:
    by = time.monotonic() + _ANSWER_SECONDS
    answer = await replica.upstream.open("GET", "/metrics", deadline=by)
    try:
        said = await answer.whole(_MOST_BYTES)
    finally:
        answer.abort()
    return said.decode("utf-8", "replace") if answer.status == 200 else ""


def render(engines: Sequence[Engine]) -> str:
    """Return the engines' families in Prometheus's text form, and those of their KV caches."""
    families: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
    caches: dict[str, dict[str, float]] = {name: {} for name in _CACHE}
    for engine in engines:
        for name in ("bytes_per_value", "tokens"):
            if (value := engine.cache.get(name)) is not None:
                caches[name][engine.labels] = float(value)
        for line in engine.text.split("\n"):
            if found := _SAMPLE.match(line):
                name, labels, value = found.groups()
                if labels and _OURS.search(labels):
                    continue
                whole = f"{engine.labels},{labels}" if labels else engine.labels
                _, series = families.setdefault(_family(families, name), ({}, {}))
                series.setdefault(f"{name}{{{whole}}}", value)
                if name == _USE:  # of several ranks, the fullest
                    used = caches["usage_ratio"].get(engine.labels, 0.0)
                    caches["usage_ratio"][engine.labels] = max(used, float(value))
            elif head := _HEAD.match(line):
                kind, name = (head[1], head[2]) if head[1] else (head[3], head[4])
                families.setdefault(name, ({}, {}))[0].setdefault(kind, line)
    lines: list[str] = []
    for heads, series in families.values():
        if series:
            lines += (*heads.values(), *(f"{one} {value}" for one, value in series.items()))
    for name, known in caches.items():
        whole = f"modelops_kv_cache_{name}"
        if known:
            lines += (f"# HELP {whole} {_CACHE[name]}", f"# TYPE {whole} gauge")
            lines += (f"{whole}{{{labels}}} {value:g}" for labels, value in known.items())
    return "".join(f"{line}\n" for line in lines)


def _family(families: Mapping[str, Any], name: str) -> str:
    """Return the family of a sample: its head stood before it, under this name or a part of it."""
    return name if name in families else _PARTS.sub("", name)
