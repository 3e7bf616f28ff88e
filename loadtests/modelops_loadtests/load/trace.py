"""Replay: when requests arrived somewhere, and how long they and their answers were."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from modelops.errors import InputError
from modelops_loadtests.load.arrivals import MAX_ARRIVALS, Schedule

_KEYS = ("at", "input_tokens", "output_tokens")
_LONGEST_LINE = 10_000
_LONGEST_S = 7 * 86_400
_MOST_TOKENS = 10_000_000
_HINT = 'write each line as {"at": 0.25, "input_tokens": 256, "output_tokens": 64}'


def read_trace(path: Path) -> Schedule:
    """Read a trace: one JSON object a line with ``at`` (seconds) and, optionally, the lengths.

    ``at`` ascends; the first one is when the replay begins.

    Raises:
        InputError: the file cannot be read, or a line is not of this form; it says which.
    """
    rows: list[tuple[float, int, int]] = []
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(_LONGEST_LINE + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(line) > _LONGEST_LINE:
                    raise InputError(f"{where} is longer than {_LONGEST_LINE:,} bytes")
                if not line.strip():
                    continue
                row = _row(line, where)
                if rows and row[0] < rows[-1][0]:
                    raise InputError(
                        f"{where}: {row[0]:g} s comes after {rows[-1][0]:g} s of the line before",
                        hint="sort the trace by its column at",
                    )
                rows.append(row)
                if len(rows) > MAX_ARRIVALS:
                    raise InputError(f"{path} has more than {MAX_ARRIVALS:,} requests")
    except OSError as error:
        raise InputError(f"cannot read the trace {path}: {error}") from error
    if not rows:
        raise InputError(f"the trace {path} holds no request", hint=_HINT)
    at = np.array([row[0] for row in rows])
    if at[-1] - at[0] > _LONGEST_S:
        raise InputError(
            f"the trace {path} spans {at[-1] - at[0]:,.0f} s, more than a week",
            hint="at is in seconds",
        )
    lengths = [np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2)]
    return Schedule.of(at - at[0], *lengths)


def _row(line: bytes, where: str) -> tuple[float, int, int]:
    try:
        parsed = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{where}: no JSON: {error}", hint=_HINT) from None
    if not isinstance(parsed, dict) or "at" not in parsed:
        raise InputError(f"{where}: no object with at", hint=_HINT)
    if unknown := parsed.keys() - set(_KEYS):
        raise InputError(f"{where}: unknown key {min(unknown)!r}", hint=_HINT)
    at = parsed["at"]
    if isinstance(at, bool) or not isinstance(at, int | float) or not math.isfinite(at) or at < 0:
        raise InputError(f"{where}: at is no time in seconds: {at!r:.80}", hint=_HINT)
    asked, answered = (_length(parsed.get(key, 0), key, where) for key in _KEYS[1:])
    return float(at), asked, answered


def _length(value: Any, key: str, where: str) -> int:
    if type(value) is not int or not 0 <= value <= _MOST_TOKENS:
        raise InputError(f"{where}: {key} is no number of tokens: {value!r:.80}", hint=_HINT)
    return value
