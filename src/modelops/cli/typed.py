"""Which options somebody typed: a default must not pass for a decision."""

from __future__ import annotations

import typer


def typed(context: typer.Context) -> list[str]:
    """Return the names of the parameters that stand on the command line, in their order."""
    return [
        name
        for name in context.params
        # By name: typer brings a click of its own in some versions.
        if (given := context.get_parameter_source(name)) is not None and given.name == "COMMANDLINE"
    ]
