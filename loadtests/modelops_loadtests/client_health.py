"""The health of several sending processes as one: the worst of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_LEAST = frozenset({"ticks"})
_APART = frozenset({"process", "series", "dispatched"})
_OWN = ("process", "cpu_share", "lag_p99_ms", "dispatch_lag_p99_ms", "connections")


def merged(clients: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst figure of each kind, and ``processes`` with each one's own.

    Each process has one core and one loop: a sum or mean would hide the one that was late.
    ``series`` has, at each moment, the worst of them.
    """
    found: dict[str, Any] = {}
    for name in dict.fromkeys(key for client in clients for key in client):
        values = [v for client in clients if (v := client.get(name)) is not None]
        if name in _APART:
            continue
        if all(isinstance(v, int | float) for v in values):
            worst = min if name in _LEAST else max
            found[name] = worst(values, default=None)
        elif values:
            found[name] = values[0]
    found["series"] = _series([client.get("series") or [] for client in clients])
    found["processes"] = [
        {name: client.get(name) for name in _OWN if name in client} for client in clients
    ]
    return found


def _series(several: Sequence[Sequence[dict[str, float]]]) -> list[dict[str, float]]:
    if len(several) == 1:
        return list(several[0])
    bins: dict[int, dict[str, float]] = {}
    for rows in several:
        for row in rows:
            held = bins.setdefault(round(row["t"] * 2), dict(row))
            for name, value in row.items():
                if name != "t":
                    held[name] = max(held.get(name, value), value)
    return [bins[key] for key in sorted(bins)]
