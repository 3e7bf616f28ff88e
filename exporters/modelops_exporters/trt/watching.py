"""TensorRT's own account of a build, told as progress."""

from __future__ import annotations

import time
from typing import Any

from modelops.progress import Progress

_PAUSE_SECONDS = 0.2


def watch(trt: Any, progress: Progress) -> Any:
    """Return an ``IProgressMonitor`` that tells which phase is how far.

    Steps come by the thousand, so that one in five a second is told; the start of a phase always.
    """
    steps: dict[str, int] = {}
    told = [0.0]

    def begin(self: Any) -> None:
        trt.IProgressMonitor.__init__(self)

    def phase_start(_self: Any, phase: str, _parent: str | None, count: int) -> None:
        steps[phase] = count
        progress(f"TensorRT: {_small(phase)}")

    def step_complete(_self: Any, phase: str, step: int) -> bool:
        now = time.monotonic()
        if now - told[0] >= _PAUSE_SECONDS:
            told[0] = now
            progress(f"TensorRT: {_small(phase)} {step + 1}/{steps.get(phase, step + 1)}")
        return True

    def phase_finish(_self: Any, phase: str) -> None:
        steps.pop(phase, None)

    members = {
        "__init__": begin,
        "phase_start": phase_start,
        "step_complete": step_complete,
        "phase_finish": phase_finish,
    }
    return type("Monitor", (trt.IProgressMonitor,), members)()


def _small(phase: str) -> str:
    return phase[:1].lower() + phase[1:80]
