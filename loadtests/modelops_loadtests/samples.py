"""The raw record of every request: what all figures are computed from, and what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import orjson

from modelops_loadtests.chunks import Chunks

Outcome = Literal["ok", "error", "cut"]
Stamps = Literal["kernel", "user"]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sample:
    """One request. Times are monotonic seconds from the start of the run.

    ``sent`` is taken before the request is written (and before the connection is opened, where
    there is none), ``first_byte`` when the reply's first byte arrived, ``end`` when its last one
    did. ``scheduled`` is when an open loop meant to send it; None in a closed loop. Of a cut
    request, one still in flight when the run was over, ``end`` is when it was given up: its
    latency is at least that.

    ``first_token`` is the arrival of the first chunk with any generated text (reasoning, content
    or a tool call; not the role, not an empty delta), ``first_output`` of the first with content
    or a tool call, ``last_token`` of the last with any. ``chunk_at`` has the arrival of each chunk
    that carries generated text, ``chunk_tokens`` how many tokens it carried, where that is known.
    ``coalesced`` counts those that came out of one read together with an earlier one.
    ``tokens_from`` says who counted ``output_tokens``. ``stamps`` says whether arrivals are the
    kernel's or were taken after the read; ``read_lag_*`` is how long what had arrived waited for
    the client to read it, ``send_lag`` how long the client took to hand a short request to the
    kernel: TTFT is too long by no more. ``number`` is the request's among those of its
    process, where each bore an ``X-Request-Id`` (``<run>-<process>-<number>``).
    """

    sent: float
    end: float
    outcome: Outcome
    scheduled: float | None = None
    first_byte: float | None = None
    first_token: float | None = None
    first_output: float | None = None
    last_token: float | None = None
    error: str | None = None
    detail: str | None = None
    status: int | None = None
    bytes_sent: int = 0
    bytes_received: int = 0
    items: int | None = None
    user: int = 0
    process: int = 0
    scenario: str | None = None
    stage: int = 0
    conversation: int | None = None
    turn: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens_from: Literal["usage", "tokenizer"] | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    chunk_at: Sequence[float] = ()
    chunk_tokens: Sequence[float] | None = None
    coalesced: int = 0
    read_lag_max: float | None = None
    read_lag_mean: float | None = None
    send_lag: float | None = None
    stamps: Stamps = "user"
    number: int | None = None


_DEFAULTS = {f.name: f.default for f in fields(Sample)}
_TEXTS = ("error", "detail", "scenario", "tokens_from", "stamps")
_LISTS = ("chunk_at", "chunk_tokens")
_NUMBERS = tuple(name for name in _DEFAULTS if name not in ("outcome", *_TEXTS, *_LISTS))


class SampleLog:
    """Writes each sample as a line of JSON; counts outcomes for whoever watches the run."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.counts: dict[Outcome, int] = {"ok": 0, "error": 0, "cut": 0}

    def append(self, sample: Sample) -> None:
        """Write one sample; fields that say no more than their default are left out."""
        self.counts[sample.outcome] += 1
        record = {
            name: value
            for name, default in _DEFAULTS.items()
            if (value := getattr(sample, name)) != default
        }
        self._stream.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))

    def flush(self) -> None:
        """Hand what was written so far to the operating system."""
        self._stream.flush()


@dataclass(frozen=True)
class SampleTable:
    """All samples by column, in the order in which they ended; a number not known is NaN.

    ``chunks`` has the arrivals of the streams' chunks; ``texts`` the columns of text by name.
    """

    columns: dict[str, Floats]
    outcome: npt.NDArray[np.str_]
    texts: dict[str, tuple[str | None, ...]]
    chunks: Chunks

    def __len__(self) -> int:
        return len(self.outcome)

    def __getitem__(self, name: str) -> Floats:
        return self.columns[name]

    @property
    def error(self) -> tuple[str | None, ...]:
        """The bounded class of what went wrong; None where nothing did."""
        return self.texts["error"]

    @property
    def detail(self) -> tuple[str | None, ...]:
        """What was said of each failure."""
        return self.texts["detail"]

    @property
    def scenario(self) -> tuple[str | None, ...]:
        """The scenario that each request was of, where the run says so."""
        return self.texts["scenario"]

    @property
    def due(self) -> Floats:
        """When each request was meant to be sent: scheduled, or sent in a closed loop."""
        scheduled = self["scheduled"]
        return np.where(np.isnan(scheduled), self["sent"], scheduled)

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> Self:
        """Build the table from samples in memory."""
        return cls._of_records([{n: getattr(s, n) for n in _DEFAULTS} for s in samples])

    @classmethod
    def read(cls, *paths: Path) -> Self:
        """Read what SampleLogs wrote, of one process or of several, sorted by when each ended.

        A last line that was cut off in the middle is left out.

        Raises:
            ValueError: another line is no sample.
        """
        records: list[dict[str, Any]] = []
        for path in paths:
            lines = path.read_bytes().split(b"\n")
            lines.pop()  # what follows the last newline: nothing, or half a record
            records += map(orjson.loads, lines)
        table = cls._of_records(records)
        return table.take(np.argsort(table["end"], kind="stable"))

    @classmethod
    def _of_records(cls, records: list[dict[str, Any]]) -> Self:
        for record in records:
            if not record.keys() <= _DEFAULTS.keys() or "outcome" not in record:
                raise ValueError(f"this is no sample: {str(record)[:200]}")
        texts = {n: tuple(r.get(n, _DEFAULTS[n]) for r in records) for n in _TEXTS}
        return cls(
            columns={name: _numbers(records, name) for name in _NUMBERS},
            outcome=np.array([record["outcome"] for record in records], dtype=np.str_),
            texts=texts,
            chunks=Chunks.of([(r.get("chunk_at", ()), r.get("chunk_tokens")) for r in records]),
        )

    def where(self, mask: Mask) -> Self:
        """Return the samples for which ``mask`` is true."""
        return self.take(np.flatnonzero(mask))

    def take(self, chosen: npt.NDArray[np.intp]) -> Self:
        """Return the samples at these places, in this order."""
        return type(self)(
            columns={name: values[chosen] for name, values in self.columns.items()},
            outcome=self.outcome[chosen],
            texts={name: tuple(texts[i] for i in chosen) for name, texts in self.texts.items()},
            chunks=self.chunks.take(chosen),
        )

    def having(self, outcome: Outcome) -> Mask:
        """Return which samples ended so."""
        return np.asarray(self.outcome == outcome)

    def write_parquet(self, path: Path) -> None:
        """Write all of it as Parquet: a row for each request, chunks as lists in it.

        A number that is not known is null there.
        """
        import pyarrow
        import pyarrow.parquet

        columns = {n: pyarrow.array(v, from_pandas=True) for n, v in self.columns.items()}
        columns["outcome"] = pyarrow.array(self.outcome.tolist(), pyarrow.string())
        columns |= {n: pyarrow.array(t, pyarrow.string()) for n, t in self.texts.items()}
        for name, flat in zip(_LISTS, (self.chunks.at, self.chunks.tokens), strict=True):
            values = pyarrow.array(flat, from_pandas=True)
            columns[name] = pyarrow.LargeListArray.from_arrays(self.chunks.offsets, values)
        pyarrow.parquet.write_table(pyarrow.table(columns), path, compression="zstd")

    @classmethod
    def read_parquet(cls, path: Path) -> Self:
        """Read what ``write_parquet`` wrote.

        Raises:
            ValueError: the file is no Parquet, or not of samples.
            OSError: it cannot be read.
        """
        import pyarrow
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path)
        if missing := {"outcome", *_TEXTS, *_LISTS, *_NUMBERS} - set(table.column_names):
            raise ValueError(f"{path} holds no samples: no column {', '.join(sorted(missing))}")
        at, tokens = (_list_column(table, name) for name in _LISTS)
        return cls(
            columns={n: _float_column(table, n) for n in _NUMBERS},
            outcome=np.array(table["outcome"].to_pylist(), dtype=np.str_),
            texts={n: tuple(table[n].to_pylist()) for n in _TEXTS},
            chunks=Chunks(at.values, tokens.values, at.offsets),
        )


def _numbers(records: list[dict[str, Any]], name: str) -> Floats:
    default = _DEFAULTS[name]
    nothing = np.nan if default is None or default is MISSING else default
    values = [nothing if (v := record.get(name)) is None else v for record in records]
    return np.array(values, dtype=np.float64)


@dataclass(frozen=True)
class _Lists:
    values: Floats
    offsets: npt.NDArray[np.int64]


def _float_column(table: Any, name: str) -> Floats:
    array = table[name].combine_chunks()
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.float64)


def _list_column(table: Any, name: str) -> _Lists:
    import pyarrow

    column = table[name].combine_chunks()
    column = column.cast(pyarrow.large_list(pyarrow.float64()))
    lengths = np.zeros(len(column) + 1, np.int64)
    lengths[1:] = column.value_lengths().to_numpy(zero_copy_only=False)
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return _Lists(np.array(flat, dtype=np.float64), np.cumsum(lengths))
