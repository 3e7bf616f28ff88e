"""``modelops doctor``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from modelops.cli import output
from modelops.errors import MissingEnvironmentError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from modelops.api.doctor import Diagnosis

_STYLE = {"ok": "green", "absent": "dim", "warning": "yellow", "broken": "red"}


def doctor(as_json: output.JsonFlag = False) -> None:
    """Show what this machine can run, and the one command that mends each problem.

    Exits with 5 where something that is installed is broken. What is not installed is no problem.

    Examples:

        modelops doctor

        modelops doctor --json
    """
    from modelops.api.doctor import examine

    with output.progress() as progress:
        diagnosis = examine(progress)
    result = {"usable": diagnosis.usable} | diagnosis.model_dump(mode="json")
    output.emit(result, as_json=as_json, show=_table(diagnosis))
    if not diagnosis.usable:
        raise typer.Exit(MissingEnvironmentError.exit_code)


def _table(diagnosis: Diagnosis) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table("", "", "", "found", box=None, pad_edge=False)
    for finding in diagnosis.findings:
        status = Text(finding.status, style=_STYLE[finding.status])
        table.add_row(finding.area, finding.name, status, Text(finding.value))
    fixes = [
        Text.assemble(("fix: ", "green"), f"{f.fix}   ({f.area} {f.name})")
        for f in diagnosis.findings
        if f.fix and f.status in ("warning", "broken")
    ]
    verdict = "this machine is ready" if diagnosis.usable else "something installed is broken"
    return Group(table, Text(), *fixes, Text(verdict, style="bold"))
