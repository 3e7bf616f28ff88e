"""One stage of a run, as every process that sends is told of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Axis = Literal["users", "rate", "trace"]


@dataclass(frozen=True)
class Stage:
    """A load to hold. All moments are seconds from the run's zero, the same for all processes.

    Sending begins at ``start``; for ``ramp`` seconds it grows, for ``warmup`` more it is held, and
    none of this is measured. The window then lasts until ``until``. With ``held`` the stage goes
    on after it until its end is told, at most until ``limit``.
    """

    number: int
    axis: Axis
    load: float
    start: float
    ramp: float
    warmup: float
    until: float
    limit: float
    held: bool = False

    @property
    def window_start(self) -> float:
        """When measuring begins."""
        return self.start + self.ramp + self.warmup

    def told(self) -> dict[str, Any]:
        """Return what is sent to a process."""
        return asdict(self)

    @classmethod
    def read(cls, told: dict[str, Any]) -> Self:
        """Return the stage that was told."""
        return cls(**told)
