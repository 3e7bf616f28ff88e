"""The part of a report.json that a comparison reads, checked: anybody may have edited it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from modelops.errors import InputError

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Window(BaseModel):
    start_s: Number
    end_s: Number
    seconds: Number
    stage: int = 0


class _Spread(BaseModel):
    mean: Number | None


class _Summary(BaseModel):
    e2e_ms: _Spread
    requests: int
    ok: int
    failed: int
    cut: int


class _Gate(BaseModel):
    metric: str
    bound: Number
    upper: bool


class _Files(BaseModel):
    samples: str


class _Recorded(BaseModel):
    verdict: Literal["PASS", "MEASURED", "FAIL", "INCONCLUSIVE", "INVALID"]
    reasons: list[str]
    gates: list[_Gate]
    summary: _Summary
    window: _Window
    spec: dict[str, Any]
    environment: dict[str, Any]
    started_at: str
    files: _Files


def check(file: Path, report: dict[str, Any]) -> None:
    """Refuse a report whose parts are not what they were written as.

    Raises:
        InputError: one is not; it says which.
    """
    try:
        _Recorded.model_validate(report)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InputError(
            f"{file} is no whole report of a load test: {where}: {first['msg'].lower()}",
            hint="measure it again",
        ) from None
