"""A number, or a range of numbers to draw from, as it is written on a command line."""

from __future__ import annotations

import re
from random import Random
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from modelops.errors import UsageError

_WRITTEN = re.compile(r"\s*(\d{1,7})\s*(?:\.\.\s*(\d{1,7})\s*)?\Z")


class Span(BaseModel):
    """Whole numbers from ``low`` to ``high``, both included; written ``256`` or ``128..512``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    low: int
    high: int

    @model_validator(mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool):
            return {"low": value, "high": value}
        if not isinstance(value, str):
            return value
        match = _WRITTEN.match(value)
        if match is None:
            raise UsageError(
                f"cannot read {value!r} as a number of tokens", hint='such as "256" or "128..512"'
            )
        return {"low": int(match[1]), "high": int(match[2] or match[1])}

    @model_validator(mode="after")
    def _ordered(self) -> Span:
        if not 1 <= self.low <= self.high:
            raise UsageError(f"the range {self} is empty or begins below 1")
        return self

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}..{self.high}"

    def draw(self, rng: Random) -> int:
        """Return one of the numbers, each as likely."""
        return rng.randint(self.low, self.high)
