"""``modelops loadtest``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output
from modelops.cli.output import JsonFlag


class Encoding(StrEnum):
    """How tensors and vectors travel."""

    JSON = "json"
    BINARY = "binary"


def loadtest(
    url: Annotated[str, typer.Argument(help="The server's base URL.")],
    scenario: Annotated[
        str, typer.Option("--scenario", "-s", help="What to send: embeddings or tensors.")
    ],
    model: Annotated[
        str | None, typer.Option(help="The model to load; by default the only one that is ready.")
    ] = None,
    users: Annotated[
        int, typer.Option("--users", "-u", min=1, max=10_000, help="Requests in flight at a time.")
    ] = 8,
    duration: Annotated[str, typer.Option(help="How long to measure: 20s, 2m.")] = "20s",
    warmup: Annotated[str, typer.Option(help="Not measured, at the start.")] = "2s",
    slo: Annotated[
        list[str] | None,
        typer.Option(help="An objective: e2e_p95_ms=300, error_rate=0.001, qps=50. Repeatable."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="MODELOPS_API_KEY", help="Sent as a bearer token.", show_envvar=True),
    ] = None,
    timeout: Annotated[str, typer.Option(help="Of one request.")] = "30s",
    data: Annotated[
        Path | None, typer.Option(help="A file of texts: one a line, or .jsonl.")
    ] = None,
    encoding: Annotated[Encoding, typer.Option(help="Of tensors and vectors.")] = Encoding.JSON,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="Inputs a request.")] = 1,
    dim: Annotated[
        list[str] | None, typer.Option(help="Size of a dynamic dim: sequence=64. Repeatable.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of every random choice.")] = 0,
    folder: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The report's folder; by default reports/…"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Load a server with locust, measure it, and judge it.

    Exit code 6 when an objective fails or its metric is missing, 7 when the run cannot be
    believed, has too few samples, or nothing was measured. The report is an HTML page, a JSON
    file and every raw sample.

    Examples:

        modelops loadtest http://127.0.0.1:8080 --scenario embeddings

        modelops loadtest http://127.0.0.1:8080 --scenario embeddings --duration 30s --slo e2e_p95_ms=300 --slo error_rate=0

        modelops loadtest http://127.0.0.1:8080 --scenario tensors --model minilm --dim sequence=64 --encoding binary
    """  # noqa: E501
    from modelops.api import loadtest as api

    request = api.LoadtestRequest(
        url=url,
        scenario=scenario,
        model=model,
        users=users,
        duration_s=api.seconds(duration),
        warmup_s=api.seconds(warmup),
        timeout_s=api.seconds(timeout),
        slo=tuple(slo or ()),
        data=data,
        encoding=encoding.value,
        batch=batch,
        dims=tuple(dim or ()),
        seed=seed,
        output=folder,
        api_key=api_key or None,
    )
    with output.progress() as progress:
        result = api.loadtest(request, progress)
    output.emit(result.report, as_json=as_json, show=api.table(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
