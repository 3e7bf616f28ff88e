"""``modelops bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output
from modelops.errors import UsageError


def bench(
    artifacts: Annotated[list[Path], typer.Argument(metavar="DIR…", help="The artifacts.")],
    source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="The checkpoint they were exported from.")
    ] = None,
    recipe: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The recipe that they were exported by.")
    ] = None,
    against: Annotated[
        str, typer.Option(help="eager, compile, or both; with --source the default is eager.")
    ] = "",
    batch: Annotated[str, typer.Option(help="Batch sizes.")] = "1,8,16",
    dim: Annotated[
        list[str] | None, typer.Option(metavar="NAME=N", help="Size of another dim (repeatable).")
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads [every usable core].")] = None,
    seconds: Annotated[float, typer.Option(help="Time for each contender at each size.")] = 2.0,
    as_json: output.JsonFlag = False,
) -> None:
    """Measure artifacts, eager and compiled PyTorch side by side: one table, one run.

    Examples:

        modelops bench artifacts/minilm --source ./all-MiniLM-L6-v2 --against eager,compile

        modelops bench artifacts/minilm/1 artifacts/minilm/2 --batch 1,32 --dim sequence=128
    """
    from modelops.api import bench as api
    from modelops.signature import parse_dim

    kinds = [k.strip() for k in against.split(",") if k.strip()] or (["eager"] if source else [])
    if unknown := set(kinds) - {"eager", "compile"}:
        raise UsageError(f"--against {min(unknown)!r} is neither eager nor compile")
    if not all(part.strip().isdigit() and int(part) for part in batch.split(",")):
        raise UsageError(f"--batch {batch!r} is no list of sizes", hint="such as 1,8,16")
    request = api.BenchRequest.model_validate(
        {
            "artifacts": artifacts,
            "source": source,
            "recipe": recipe,
            "against": kinds,
            "batches": [int(part) for part in batch.split(",")],
            "dims": {name: found.max for name, found in map(parse_dim, dim or [])},
            "threads": threads,
            "seconds": seconds,
        }
    )
    with output.progress() as progress:
        result = api.bench(request, progress)
    output.emit(result, as_json=as_json, show=None if as_json else api.view(result))
