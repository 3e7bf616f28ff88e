"""``modelops inspect`` and ``modelops verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output


def inspect(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A checkpoint or an artifact.")],
    as_json: output.JsonFlag = False,
) -> None:
    """Show what a checkpoint or artifact holds, without running anything in it.

    Examples:

        modelops inspect run7.ckpt

        modelops inspect artifacts/minilm --json
    """
    from modelops.api import inspect as api

    with output.progress() as progress:
        found = api.inspect(path, progress)
    output.emit(found, as_json=as_json, show=None if as_json else api.view(found))


def verify(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="The artifact.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="[OTHER]", help="Another that must answer the same.")
    ] = None,
    digest: Annotated[
        str | None, typer.Option(metavar="SHA256", help="The digest that it must have.")
    ] = None,
    points: Annotated[
        int, typer.Option(min=0, max=1000, help="Fresh random inputs to compare two artifacts on.")
    ] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Seed of those inputs.")] = 0,
    as_json: output.JsonFlag = False,
) -> None:
    """Check an artifact's files, then its answers on this machine against eager's.

    Examples:

        modelops verify artifacts/minilm

        modelops verify artifacts/minilm/3 --digest sha256:1f0c…

        modelops verify artifacts/minilm-pt2 artifacts/minilm
    """
    from modelops.api import verify as api

    with output.progress() as progress:
        found = api.verify(path, other, pin=digest, points=points, seed=seed, progress=progress)
    output.emit(found, as_json=as_json, show=None if as_json else api.view(found))
