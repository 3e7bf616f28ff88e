"""What ``modelops bench`` is asked, and the table that it makes."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from modelops.signature import Frozen

Against = Literal["eager", "compile"]


class BenchRequest(Frozen):
    """Artifacts and PyTorch side by side, in one run.

    ``source`` (and ``recipe``) is the checkpoint that the first artifact was exported from, for
    the contenders in ``against``. ``batches`` are sizes of the batch dim, ``dims`` of the others.
    ``seconds`` is the time for each contender at each size.
    """

    artifacts: tuple[Path, ...] = Field(min_length=1)
    source: str | None = None
    recipe: Path | None = None
    against: tuple[Against, ...] = ()
    batches: tuple[int, ...] = (1, 8, 16)
    dims: dict[str, int] = Field(default_factory=dict)
    threads: int | None = Field(default=None, ge=1)
    seconds: float = Field(default=2.0, gt=0)
    seed: int = 0


class BenchRow(Frozen):
    """One contender at one size; milliseconds a call, items a second.

    ``speedup`` is how many times the first contender's median this one's is faster;
    ``cosine`` is the worst row's against the first contender's outputs.
    """

    contender: str
    dims: dict[str, int]
    runs: int
    p50_ms: float
    p95_ms: float
    items_per_second: float
    speedup: float
    cosine: float | None


class BenchResult(Frozen):
    """The table, and what it was measured with."""

    kind: Literal["bench"] = "bench"
    threads: int
    versions: dict[str, str]
    rows: tuple[BenchRow, ...]
