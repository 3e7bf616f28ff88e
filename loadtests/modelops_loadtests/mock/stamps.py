"""The mock's own record: what came when, and what was written when.

All times are of ``time.perf_counter``, which on Linux is one clock for all processes.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Record:
    """One request; when it ``arrived`` is the kernel's word, not when the mock came to read it.

    Of each chunk that carries text: ``due``, ``writing`` just before its bytes were handed to the
    kernel, ``wrote`` just after. On a busy machine the process may rest between the two: when the
    bytes went is known to lie between them, and no better. ``queued`` counts writes that the
    kernel did not take at once, because the client does not read: their stamps are too early.
    """

    number: int
    name: str | None
    path: str
    arrived: float
    prompt_tokens: int = 0
    began: float | None = None
    first_byte: float | None = None
    ended: float | None = None
    outcome: str = ""
    queued: int = 0
    due: array[float] = field(default_factory=lambda: array("d"))
    writing: array[float] = field(default_factory=lambda: array("d"))
    wrote: array[float] = field(default_factory=lambda: array("d"))
    tokens: list[int] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return it as /stamps shows it."""
        return {
            "number": self.number,
            "id": self.name,
            "path": self.path,
            "arrived": self.arrived,
            "began": self.began,
            "first_byte": self.first_byte,
            "ended": self.ended,
            "outcome": self.outcome,
            "queued": self.queued,
            "prompt_tokens": self.prompt_tokens,
            "tokens": self.tokens,
            "due": self.due.tolist(),
            "writing": self.writing.tolist(),
            "wrote": self.wrote.tolist(),
        }


@dataclass
class Ledger:
    """The records of all requests, and the sums that /metrics shows."""

    records: list[Record] = field(default_factory=list)
    count: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0

    def open(self, name: str | None, path: str, arrived: float) -> Record:
        """Begin the record of a request."""
        record = Record(self.count, name, path, arrived)
        self.count += 1
        self.records.append(record)
        return record

    def close(self, record: Record, outcome: str, ended: float) -> None:
        """End the record of a request."""
        record.ended, record.outcome = ended, outcome
        self.finished += outcome == "ok"
        self.prompt_tokens += record.prompt_tokens
        self.generated_tokens += sum(record.tokens)

    def stamps(self) -> dict[str, Any]:
        """Return all records, and how late the mock itself wrote: a percentile in milliseconds."""
        late = sorted(
            wrote - due
            for record in self.records
            for wrote, due in zip(record.wrote, record.due, strict=True)
        )
        at = {name: late[int(share * (len(late) - 1))] * 1000 for name, share in _SHOWN if late}
        return {"late_ms": at, "requests": [record.as_dict() for record in self.records]}

    def arrivals(self) -> list[tuple[float, float | None]]:
        """Return when each request came and when its reply was over."""
        return [(record.arrived, record.ended) for record in self.records]

    def forget(self) -> None:
        """Drop the records; the numbers of requests go on."""
        self.records.clear()


_SHOWN = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
