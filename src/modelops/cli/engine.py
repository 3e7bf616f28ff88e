"""``modelops engine``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelops.cli import output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from modelops.environments import EngineStatus

app = typer.Typer(
    name="engine",
    help="Install engines into environments of their own, list and remove them.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Name = Annotated[str, typer.Argument(metavar="NAME", help="An engine, such as vllm.")]
_Folder = Annotated[
    Path | None,
    typer.Option(
        "--engines-dir",
        metavar="DIR",
        help="Where environments are, instead of $MODELOPS_ENGINES_DIR or your data folder.",
        show_default=False,
    ),
]
_STYLE = {
    "ready": "green", "outdated": "yellow", "half-made": "yellow", "broken": "red", "absent": "dim",
}  # fmt: skip


@app.command()
def install(
    name: _Name,
    build: Annotated[
        str | None,
        typer.Option(metavar="BUILD", help="This build, whatever fits.", show_default=False),
    ] = None,
    python: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Use an environment of your own: its interpreter. It is never changed.",
            show_default=False,
        ),
    ] = None,
    reinstall: Annotated[
        bool, typer.Option("--reinstall", help="Make it anew, even where it is whole.")
    ] = False,
    engines_dir: _Folder = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Install an engine into an environment of its own: the build for this machine, locked.

    Every package is pinned and checked against a hash. Packages come from where your pip looks
    (`pip config list`). What was there before counts until the new environment is whole, so an
    interrupted installation changes nothing. Where it is whole and current, nothing is done.

    Examples:

        modelops engine install vllm

        modelops engine install vllm --reinstall

        modelops engine install vllm --python ~/vllm/bin/python
    """
    from modelops.api.engine import install as run
    from modelops.report.terminal import pairs
    from modelops.report.units import nbytes, seconds

    with output.progress() as progress:
        result = run(
            name,
            folder=engines_dir,
            build=build,
            python=python,
            reinstall=reinstall,
            progress=progress,
        )
    took = "nothing to do: it is whole and current" if result.already else seconds(result.seconds)
    table = pairs(
        [
            ("engine", f"{result.engine} {result.version} on {result.platform}"),
            ("build", f"{result.build} ({result.why})"),
            ("python", f"{result.python_version} ({result.python})"),
            ("size", nbytes(result.size_bytes) if result.size_bytes else None),
            ("took", took),
            *(("note", note) for note in result.notes),
        ]
    )
    output.emit(result, as_json=as_json, show=table)


@app.command("list")
def list_engines(engines_dir: _Folder = None, as_json: output.JsonFlag = False) -> None:
    """List the engines that have environments: state, version, build, Python, size.

    Examples:

        modelops engine list

        modelops engine list --json
    """
    from modelops.api.engine import engines

    found = engines(engines_dir)
    result = {"engines": [status.model_dump(mode="json") for status in found]}
    output.emit(result, as_json=as_json, show=_table(found))


@app.command()
def remove(name: _Name, engines_dir: _Folder = None, as_json: output.JsonFlag = False) -> None:
    """Remove an engine's environment, and what interrupted installations left.

    Only what modelops made is removed; an environment of your own is forgotten and left alone.

    Examples:

        modelops engine remove vllm
    """
    from modelops.api.engine import remove as run
    from modelops.report.terminal import plain

    with output.progress() as progress:
        removed = run(name, folder=engines_dir, progress=progress)
    lines = [f"removed: {path}" for path in removed.folders]
    if removed.own is not None:
        lines.append(f"forgotten, and left as it is: {removed.own}")
    output.emit(removed, as_json=as_json, show=plain("\n".join(lines)))


def _table(found: list[EngineStatus]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from modelops.report.terminal import grid, plain
    from modelops.report.units import nbytes

    headings = ("engine", "state", "version", "build", "python", "size", "where")
    table = grid(*((h, "right" if h == "size" else "left") for h in headings))
    for status in found:
        table.add_row(
            plain(status.engine),
            Text(status.state, style=_STYLE[status.state]),
            plain(status.version or ""),
            plain(status.build or ""),
            plain(status.python_version or ""),
            plain(nbytes(status.size_bytes) if status.size_bytes else ""),
            plain(status.folder or ""),
        )
    problems = [
        Text.assemble(("fix: ", "green"), f"{s.fix}   ({s.engine}: {s.problem or s.state})")
        for s in found
        if s.fix
    ]
    return Group(table, *problems)
