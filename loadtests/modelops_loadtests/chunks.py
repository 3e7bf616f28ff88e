"""When the chunks of all streams arrived, and how many tokens each carried: flat, by stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Chunks:
    """Chunks of stream ``i`` are at ``offsets[i]`` up to ``offsets[i + 1]``.

    ``at`` are seconds of the run, ``tokens`` is NaN where the number is not known.
    """

    at: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def of(cls, streams: Sequence[tuple[Sequence[float], Sequence[float] | None]]) -> Self:
        """Build them from each stream's arrivals and, where known, tokens.

        Raises:
            ValueError: a stream has another number of tokens than of arrivals.
        """
        lengths = [len(at) for at, _ in streams]
        offsets = np.zeros(len(streams) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        at, tokens = np.empty(offsets[-1]), np.full(offsets[-1], np.nan)
        for (arrived, counted), begin, end in zip(streams, offsets, offsets[1:], strict=False):
            at[begin:end] = arrived
            if counted is not None:
                if len(counted) != len(arrived):
                    raise ValueError(f"{len(arrived)} chunks, and tokens of {len(counted)}")
                tokens[begin:end] = counted
        return cls(at, tokens, offsets)

    def __len__(self) -> int:
        return len(self.at)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How many chunks each stream has."""
        return np.diff(self.offsets)

    @property
    def stream(self) -> npt.NDArray[np.int64]:
        """The place of the stream that each chunk is of."""
        return np.repeat(np.arange(len(self.offsets) - 1), self.counts)

    @property
    def gap_ends(self) -> npt.NDArray[np.intp]:
        """The places of the chunks that follow another one of the same stream."""
        stream = self.stream
        return np.flatnonzero(stream[1:] == stream[:-1]) + 1

    def take(self, chosen: npt.NDArray[np.intp]) -> Self:
        """Return the chunks of these streams, in this order."""
        lengths = self.counts[chosen]
        offsets = np.zeros(len(chosen) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        # Each chunk's place: where its stream begins here, plus its number in the stream.
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        return type(self)(self.at[places], self.tokens[places], offsets)
