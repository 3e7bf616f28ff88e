"""Prometheus's text form, read strictly: a line that is not well formed counts for nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

MOST_LABEL = 120
MOST_LINE = 8192
_LABEL = r'[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\"n])*"'
_LABELS = rf"(?:{_LABEL}(?:, ?{_LABEL})*,? ?)?"
_LINE = re.compile(
    rf"([a-zA-Z_:][\w:]*)(?:\{{ ?({_LABELS})\}})?"
    # A value, and perhaps when it was taken, or an exemplar of OpenMetrics: neither is needed.
    r"[ \t]+([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[+-]?Inf|NaN)"
    r"(?:[ \t]+-?\d+(?:\.\d+)?)?(?:[ \t]+#.*)?[ \t]*\Z",
    re.ASCII,
)
_PAIR = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', re.ASCII)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


class Point(NamedTuple):
    """One sample: its value is finite, its labels are cut to ``MOST_LABEL`` characters."""

    name: str
    labels: dict[str, str]
    value: float


def read(body: bytes, names: Collection[str]) -> Iterator[Point]:
    """Yield the samples of ``body`` whose name is in ``names``; whatever else it holds is skipped.

    Nothing in a body raises. The cost of a line that is not asked for is one look at its start: a
    megabyte of other metrics takes milliseconds.
    """
    prefixes = tuple(sorted({name.encode() for name in names}))
    if not prefixes:
        return
    for line in body.split(b"\n"):
        if not line.startswith(prefixes) or len(line) > MOST_LINE:
            continue
        found = _LINE.match(line.rstrip(b"\r").decode("utf-8", "replace"))
        if found is None or found[1] not in names:
            continue
        value = float(found[3])
        if math.isfinite(value):
            labels = {name: _text(text) for name, text in _PAIR.findall(found[2] or "")}
            yield Point(found[1], labels, value)


def _text(written: str) -> str:
    return re.sub(r'\\[\\"n]', lambda m: _ESCAPED[m[0]], written[: 2 * MOST_LABEL])[:MOST_LABEL]
