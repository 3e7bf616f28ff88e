"""The raw record of every request: what all figures are computed from, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import orjson

Outcome = Literal["ok", "error", "cut"]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are monotonic seconds from the start of the run.

    ``sent`` is taken before the request is written (and before the connection is opened, where
    there is none), ``first_byte`` when the reply's headers are complete, ``end`` after its last
    byte and before it is checked. ``scheduled`` is when an open loop meant to send it; None in a
    closed loop. Of a cut request, one still in flight when the run was over, ``end`` is when it
    was given up: its latency is at least that.
    """

    sent: float
    end: float
    outcome: Outcome
    first_byte: float | None = None
    scheduled: float | None = None
    error: str | None = None
    detail: str | None = None
    status: int | None = None
    bytes_sent: int = 0
    bytes_received: int = 0
    items: int | None = None
    tokens: int | None = None
    user: int = 0


class SampleLog:
    """Writes each sample as a line of JSON; counts outcomes for whoever watches the run."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.counts: dict[Outcome, int] = {"ok": 0, "error": 0, "cut": 0}

    def append(self, sample: Sample) -> None:
        """Write one sample; fields that are None are left out."""
        self.counts[sample.outcome] += 1
        record = {name: value for name, value in asdict(sample).items() if value is not None}
        self._stream.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Hand what was written so far to the operating system."""
        self._stream.flush()


_NUMBERS = (
    "sent",
    "end",
    "first_byte",
    "scheduled",
    "status",
    "bytes_sent",
    "bytes_received",
    "items",
    "tokens",
    "user",
)


@dataclass(frozen=True)
class SampleTable:
    """All samples by column, in the order in which they ended; a number not known is NaN."""

    columns: dict[str, Floats]
    outcome: npt.NDArray[np.str_]
    error: tuple[str | None, ...]
    detail: tuple[str | None, ...]

    def __len__(self) -> int:
        return len(self.outcome)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Self:
        """Build the table from samples in memory."""
        return cls._of_records([asdict(sample) for sample in samples])

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what SampleLog wrote; a last line that was cut off in the middle is left out.

        Raises:
            ValueError: another line is no sample.
        """
        lines = path.read_bytes().split(b"\n")
        lines.pop()  # what follows the last newline: nothing, or half a record
        return cls._of_records([orjson.loads(line) for line in lines])

    @classmethod
    def _of_records(cls, records: list[dict[str, Any]]) -> Self:
        known = {field.name for field in fields(Sample)}
        for record in records:
            if not record.keys() <= known or "outcome" not in record:
                raise ValueError(f"this is no sample: {record}")
        columns = {
            name: np.array(
                [np.nan if (v := record.get(name)) is None else v for record in records],
                dtype=np.float64,
            )
            for name in _NUMBERS
        }
        return cls(
            columns=columns,
            outcome=np.array([record["outcome"] for record in records], dtype=np.str_),
            error=tuple(record.get("error") for record in records),
            detail=tuple(record.get("detail") for record in records),
        )

    def where(self, mask: Mask) -> Self:
        """Return the samples for which ``mask`` is true."""
        chosen = np.flatnonzero(mask)
        return type(self)(
            columns={name: values[chosen] for name, values in self.columns.items()},
            outcome=self.outcome[chosen],
            error=tuple(self.error[i] for i in chosen),
            detail=tuple(self.detail[i] for i in chosen),
        )

    def having(self, outcome: Outcome) -> Mask:
        """Return which samples ended so."""
        return np.asarray(self.outcome == outcome)

    @property
    def due(self) -> Floats:
        """When each request was meant to be sent: scheduled, or sent in a closed loop."""
        scheduled = self["scheduled"]
        return np.where(np.isnan(scheduled), self["sent"], scheduled)

    @property
    def e2e(self) -> Floats:
        """Seconds from when each request was due to its last byte."""
        return self["end"] - self.due
