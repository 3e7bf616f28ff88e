"""Arrivals: an open loop as the mock saw it, and what waits behind one connection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from loadtesters.tools import options
from loadtesters.watching import Watched
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.samples import SampleTable

TOLERANCE_S = 0.0005
"""What a time may be off at p50, of the accuracy that is asked for."""

_SERVICE_MS = 500.0
_QUEUED_RATE, _QUEUED_SECONDS = 10.0, 3.0


def ours(url: str, folder: Path, **more: Any) -> tuple[dict[str, Any], SampleTable]:
    """Run one load test with these options; return its report and its samples."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {"PYTHONPATH": str(Path(__file__).parents[1])}
    Watched(options(url, folder, **more), folder / "log.txt", env).run()
    report = json.loads((folder / "report.json").read_text())
    return report, SampleTable.read_parquet(folder / "samples.parquet")


def open_loop(rate: float, seconds: float, folder: Path) -> dict[str, Any]:
    """Send Poisson arrivals; return what rate and what gaps the mock saw.

    ``ks_p`` is how likely gaps of a Poisson process are to be as far from its distribution, where
    each gap is known to ``TOLERANCE_S``: no smaller than two sends one after the other is any gap
    of one process, and of 15,000 gaps a 0.03 ms is found. ``exact`` are the same to the
    microsecond, ``planned`` of the schedule itself.
    """
    with MockServer(Script(ttft_ms=5)) as mock:
        report, samples = ours(
            mock.url, folder, scenario="embeddings", rate=rate, duration_s=seconds, warmup_s=0
        )
        came = np.sort([at for at, _ in mock.arrivals()])
    ks = {
        name: kolmogorov_smirnov(np.diff(np.sort(at)), rate, tolerance)
        for name, at, tolerance in (
            ("planned", samples["scheduled"], 0.0), ("exact", came, 0.0), ("", came, TOLERANCE_S)
        )
    }  # fmt: skip
    return {
        "rate": rate, "seconds": seconds, "arrivals": len(came), "verdict": report["verdict"],
        "reasons": report["reasons"], "delivered": report["client"]["rate"],
        "seen": (len(came) - 1) / float(came[-1] - came[0]),
        "ks_distance": ks[""][0], "ks_p": ks[""][1],
        "exact": ks["exact"], "planned": ks["planned"],
        "queued_p99_ms": report["client"]["queued_p99_ms"],
        "cpu": report["client"]["cpu_share"],
    }  # fmt: skip


def kolmogorov_smirnov(
    gaps: npt.NDArray[np.float64], rate: float, tolerance: float
) -> tuple[float, float]:
    """Return D and p of gaps against the exponential law, each gap known to ± ``tolerance`` s.

    D is the largest distance between both distributions that no shift of gaps within the tolerance
    explains; p is that of the plain test for it.
    """
    gaps = np.sort(gaps)
    law = stats.expon(scale=1 / rate).cdf
    count = len(gaps)
    above = np.arange(1, count + 1) / count - law(gaps + tolerance)
    below = law(gaps - tolerance) - np.arange(count) / count
    distance = float(max(above.max(), below.max(), 0.0))
    return distance, float(stats.kstwo.sf(distance, count))


def one_connection(folder: Path) -> dict[str, Any]:
    """Ask a server of 500 ms ten times a second over one connection, and once in a closed loop.

    What a request waited is known from the schedule and the mock's stamps: ``waited_ms`` is its
    median, which the open loop reports and the closed one hides.
    """
    asked = {"input_tokens": 8, "output_tokens": 1, "warmup_s": 0, "duration_s": _QUEUED_SECONDS}
    script = Script(ttft_ms=_SERVICE_MS, concurrency=1, role_chunk=False)
    with MockServer(script) as mock:
        report, samples = ours(
            mock.url, folder / "open", rate=_QUEUED_RATE, arrivals="constant", connections=1,
            timeout_s=60, **asked,
        )  # fmt: skip
        written = sorted(r["wrote"][0] for r in mock.stamps()["requests"])
    with MockServer(script) as mock:
        closed, _ = ours(mock.url, folder / "closed", users=1, **asked)
    due = np.sort(samples["scheduled"])
    # Served in the order of arrival: the first is sent when it is due.
    truth = (np.array(written) - written[0]) - (due - due[0]) + _SERVICE_MS / 1000
    return {
        "verdict": report["verdict"],
        "requests": len(samples),
        "waited_ms": float(np.median(truth)) * 1000,
        "ttft_ms": report["summary"]["ttft_ms"]["p50"],
        "ttft_from_sent_ms": report["summary"]["ttft_from_sent_ms"]["p50"],
        "closed_loop_ms": closed["summary"]["ttft_ms"]["p50"],
    }
