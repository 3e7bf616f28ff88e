"""Whether a run may be believed at all: the generator's own health, judged before any gate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_CPU_SHARE = 0.9
LAG_FLOOR_MS = 20.0
LAG_SHARE = 0.25


def lag_bound_ms(e2e_p50_ms: float | None) -> float:
    """Return how late the generator's loop may run (p99): 20 ms, or a quarter of the median.

    Lag is added to the latencies that are measured. A loop that shares its cores with the server
    is late by the scheduler's slices, a few milliseconds, without anything being wrong; beyond
    both of these bounds it is no longer the server that is measured.
    """
    return max(LAG_FLOOR_MS, LAG_SHARE * (e2e_p50_ms or 0.0))


def problems(client: Mapping[str, Any], e2e_p50_ms: float | None) -> list[str]:
    """Return why the generator makes the run INVALID; nothing where it was well."""
    found = []
    cpu, lag = client.get("cpu_share"), client.get("lag_p99_ms")
    if cpu is not None and cpu > MAX_CPU_SHARE:
        found.append(
            f"the load generator used {cpu:.0%} of its one core (bound {MAX_CPU_SHARE:.0%}): use "
            "fewer --users, or run it on another machine than the server"
        )
    bound = lag_bound_ms(e2e_p50_ms)
    if lag is not None and lag > bound:
        found.append(
            f"the load generator ran late: p99 of its loop's lag was {lag:.1f} ms (bound "
            f"{bound:.1f} ms): free a core for it, use fewer --users, or run it elsewhere"
        )
    if lag is None:
        found.append("the load generator's own lag was not recorded: measure for longer")
    return found
