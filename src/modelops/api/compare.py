"""Compare load tests that have been run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from modelops import registry
from modelops.progress import Progress, silent


class CompareRequest(BaseModel):
    """Which runs to compare, and how much worse ``b`` may be.

    ``a`` and ``b`` are report folders or the report.json in them: one of each, or several that
    took turns. ``max_regression`` are limits such as ``p95=5%``, ``ttft_p99=10%`` and ``qps=2%``;
    ``output`` is the folder for the page, by default a new one below ``reports``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    a: tuple[Path, ...] = Field(min_length=1)
    b: tuple[Path, ...] = Field(min_length=1)
    max_regression: tuple[str, ...] = ()
    allow_invalid: bool = False
    output: Path | None = None


class CompareResult(BaseModel):
    """The verdict; ``report`` is the contents of compare.json."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdict: Literal["PASS", "MEASURED", "FAIL", "INCONCLUSIVE", "INVALID"]
    exit_code: int
    report: dict[str, Any]


def compare(request: CompareRequest, progress: Progress = silent) -> CompareResult:
    """Compare runs and write the page.

    Raises:
        UsageError: a limit cannot be meant, or one run is set against several.
        InputError: a run cannot be read, or the page cannot be written.
        MissingEnvironmentError: the extra ``loadtest`` is not installed.
    """
    run = registry.load("modelops_loadtests.comparison.files:compare_files", extra="loadtest")
    report: dict[str, Any] = run(request.model_dump(), progress)
    return CompareResult(verdict=report["verdict"], exit_code=report["exit_code"], report=report)


def table(result: CompareResult) -> Any:
    """Return the result as a rich renderable for a terminal."""
    return registry.load("modelops_loadtests.comparison.table:table", extra="loadtest")(
        result.report
    )
