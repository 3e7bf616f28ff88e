"""What a conversion to another precision costs and gives, for the report of an export."""

from __future__ import annotations

from pydantic import Field

from modelops.signature import Frozen


class SpeedRow(Frozen):
    """Median milliseconds of one call at one size, measured by turns in one run."""

    dims: dict[str, int]
    eager_ms: float
    float32_ms: float
    converted_ms: float

    @property
    def against_float32(self) -> float:
        """How many times as fast as the float32 graph in the same runtime."""
        return self.float32_ms / self.converted_ms

    @property
    def against_eager(self) -> float:
        """How many times as fast as eager PyTorch in float32."""
        return self.eager_ms / self.converted_ms


class SearchStep(Frozen):
    """One try of the search: so many nodes left in float, and what came of it."""

    left_out: int
    cosine: float | None
    error: float
    holds: bool


class ConversionReport(Frozen):
    """Bytes of the model before and after, time, and what stayed in float.

    ``left_in_float`` counts nodes; ``search`` are the tries by which they were found.
    """

    precision: str
    method: str | None = None
    bytes_before: int = Field(ge=0)
    bytes_after: int = Field(ge=0)
    left_in_float: int = 0
    search: tuple[SearchStep, ...] = ()
    speed: tuple[SpeedRow, ...] = ()

    @property
    def share(self) -> float:
        """What is left of the bytes, 0 to 1."""
        return self.bytes_after / max(self.bytes_before, 1)
