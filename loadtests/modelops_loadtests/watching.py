"""What a sending process tells of itself twice a second: counts, and what was seen lately."""

from __future__ import annotations

from typing import Any

from modelops_loadtests.samples import Sample, SampleLog

_MOST = 200
"""Latencies told at a time: whoever watches needs the middle, not every one."""


class WatchedLog:
    """Writes samples to ``log``, and remembers a few figures until they are told."""

    def __init__(self, log: SampleLog) -> None:
        self._log = log
        self._e2e: list[float] = []
        self._ttft: list[float] = []
        self._tokens = 0

    def append(self, sample: Sample) -> None:
        """Take one."""
        self._log.append(sample)
        if sample.outcome != "ok":
            return
        self._tokens += sample.output_tokens or 0
        if len(self._e2e) < _MOST:
            due = sample.sent if sample.scheduled is None else sample.scheduled
            last = sample.end if sample.last_token is None else sample.last_token
            self._e2e.append(round((last - due) * 1000, 3))
            if sample.first_token is not None:
                self._ttft.append(round((sample.first_token - due) * 1000, 3))

    def told(self) -> dict[str, Any]:
        """Return the counts so far, and what came since it was last asked; flush the file."""
        self._log.flush()
        found: dict[str, Any] = {
            **{str(outcome): number for outcome, number in self._log.counts.items()},
            "tokens": self._tokens,
            "e2e_ms": self._e2e,
            "ttft_ms": self._ttft,
        }
        self._e2e, self._ttft, self._tokens = [], [], 0
        return found
