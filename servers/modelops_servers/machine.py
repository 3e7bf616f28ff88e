"""What this process may use of the machine, as cgroups and CPU affinity have it."""

from __future__ import annotations

import math
import os
from pathlib import Path


def usable_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many cores this process may keep busy: its affinity, capped by its CPU quota."""
    cores = len(os.sched_getaffinity(0))
    quota = _quota(cgroup)
    return max(1, min(cores, math.ceil(quota))) if quota is not None else cores


def _quota(cgroup: Path) -> float | None:
    """Read cgroup v2's ``cpu.max`` or v1's pair of files; None where there is no limit."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit in ("max", "-1"):
        return None
    return int(limit) / int(period)
