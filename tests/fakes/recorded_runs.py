"""Load tests on disk that never ran: seeded latencies, with what a comparison reads of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson

from modelops_loadtests.measure import Window, measure, summary
from modelops_loadtests.samples import Sample, SampleTable

SECONDS, RATE = 60.0, 40.0


def record(
    folder: Path,
    *,
    seed: int = 0,
    scale: float = 1.0,
    failed: float = 0.0,
    verdict: str = "MEASURED",
    started: int = 0,
    **spec: Any,
) -> Path:
    """Write a run of 60 s at 40 requests/s whose median latency is ``scale`` × 50 ms."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    due = np.arange(0, SECONDS, 1 / RATE)
    took = 0.05 * scale * rng.lognormal(0, 0.3, len(due))
    lost = rng.random(len(due)) < failed
    samples = SampleTable.of(
        Sample(
            sent=t,
            scheduled=t,
            end=t + d,
            outcome="error" if bad else "ok",
            error="reset" if bad else None,
            first_byte=t + d / 2,
            status=200,
        )
        for t, d, bad in zip(due.tolist(), took.tolist(), lost.tolist(), strict=True)
    )
    samples.write_parquet(folder / "samples.parquet")
    report = {
        "schema_version": 2,
        "kind": "loadtest",
        "verdict": verdict,
        "reasons": ["the load generator ran late"] if verdict == "INVALID" else [],
        "gates": [],
        "summary": summary(measure(samples, Window(0, SECONDS))),
        "window": {"start_s": 0.0, "end_s": SECONDS, "seconds": SECONDS, "stage": 0},
        "environment": {"cpus": 2, "system": "Linux x86_64", "modelops": "1"},
        "started_at": f"2030-01-01T00:{started:02d}:00+00:00",
        "spec": {"scenario": "embeddings", "model": "m", "rate": RATE, "sweep": None, **spec},
        "files": {"samples": str(folder / "samples.parquet")},
    }
    (folder / "report.json").write_bytes(orjson.dumps(report))
    return folder
