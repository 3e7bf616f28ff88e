"""Where an export's time and memory go, step by step."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from modelops.progress import Progress
from modelops.report.export import Step


class StepClock:
    """Times named steps; the peak is of the whole process so far, in MB."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.steps: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time what is done inside, under ``name``."""
        self._progress(name)
        started = time.monotonic()
        yield
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Linux counts in KiB, macOS in bytes.
        megabytes = peak / (1e6 if sys.platform == "darwin" else 1e6 / 1024)
        self.steps.append(
            Step(name=name, seconds=time.monotonic() - started, peak_mb=round(megabytes, 1))
        )
