"""``modelops compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output
from modelops.cli.output import JsonFlag
from modelops.errors import UsageError


def compare(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[A B]", help="Two report folders, or two sets of them: A1,A2 B1,B2."
        ),
    ] = None,
    a: Annotated[
        list[Path] | None, typer.Option("--a", help="A run of the first set. Repeatable.")
    ] = None,
    b: Annotated[
        list[Path] | None, typer.Option("--b", help="A run of the second set. Repeatable.")
    ] = None,
    max_regression: Annotated[
        list[str] | None,
        typer.Option(
            help="How much worse B may be: p95=5%, ttft_p99=10%, qps=2%, error_rate=0.1%. "
            "Repeatable."
        ),
    ] = None,
    allow_invalid: Annotated[
        bool, typer.Option("--allow-invalid", help="Compare runs that are INVALID all the same.")
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page's folder; by default reports/compare-…"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Set two load tests against each other: what differs, by how much, and whether it is shown.

    Each difference has a confidence interval that respects correlation in time; where it holds
    zero, no difference is shown. Of several runs a side, best measured by turns, how runs vary is
    what counts. A bare percentile in a limit is of the end-to-end latency.

    Exit code 0, with --max-regression 6 when B is worse than allowed and 7 when that is undecided;
    7 also when a run is INVALID.

    Examples:

        modelops compare reports/before reports/after

        modelops compare reports/before reports/after --max-regression p95=5% --max-regression qps=2%

        modelops compare reports/a1,reports/a2,reports/a3 reports/b1,reports/b2,reports/b3 --json
    """  # noqa: E501
    from modelops.api import compare as api

    if runs and (a or b or len(runs) != 2):
        raise UsageError(
            "two runs are compared: A and B, or any number of --a and --b",
            hint="modelops compare --help",
        )
    if not runs and not (a and b):
        raise UsageError("there is nothing to compare", hint="modelops compare A B")
    first, second = (
        ([Path(part) for part in text.split(",") if part] for text in runs) if runs else (a, b)
    )
    request = api.CompareRequest(
        a=tuple(first or ()),
        b=tuple(second or ()),
        max_regression=tuple(max_regression or ()),
        allow_invalid=allow_invalid,
        output=folder,
    )
    with output.progress() as progress:
        result = api.compare(request, progress)
    output.emit(result.report, as_json=as_json, show=api.table(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
