"""``modelops config``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output

app = typer.Typer(
    name="config",
    help="Check a modelops.yaml, or describe what may be in one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A modelops.yaml.")],
    as_json: output.JsonFlag = False,
) -> None:
    """Say what a configuration serves, or every mistake in it with its line; nothing is loaded.

    Sources, engines, formats, ports and the keys file are looked at, with the environment
    (MODELOPS_PORT, …) as `modelops serve --config` would see it. Paths are relative to FILE's
    folder. Exit code 3 where the configuration or a source is bad, 4 where an artifact is not
    whole.

    Examples:

        modelops config check modelops.yaml

        modelops config check modelops.yaml --json
    """
    import os

    from modelops.api.config import check as run
    from modelops.cli.plan import show_plan

    plan = run(file, os.environ, output.note)
    output.emit(plan, as_json=as_json, show=None if as_json else show_plan(plan))


@app.command()
def schema(as_json: output.JsonFlag = False) -> None:
    """Print the JSON schema of modelops.yaml: every key, its unit, its default.

    Editors complete and check a file against it: put `# yaml-language-server: $schema=FILE` on
    its first line.

    Examples:

        modelops config schema > modelops.schema.json
    """
    import json

    from rich.text import Text

    from modelops.api.config import schema as describe

    described = describe()
    output.emit(described, as_json=as_json, show=Text(json.dumps(described, indent=2)))
