"""The ``modelops`` command: its sub-commands, and the one place where exit codes are decided."""

from __future__ import annotations

import sys
from typing import Annotated

try:
    import typer

    from modelops import __version__
    from modelops.cli import (
        bench,
        compare,
        config,
        doctor,
        engine,
        export,
        loadtest,
        look,
        output,
        serve,
        status,
        trust,
    )
    from modelops.errors import MissingEnvironmentError, UsageError
except KeyboardInterrupt:  # half of a command's first second is spent up there
    sys.stderr.write("interrupted\n")
    sys.exit(130)

# typer brings a click of its own in some versions: its errors are found from typer's side.
_ClickException: type[Exception] = next(
    c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException"
)

app = typer.Typer(
    name="modelops",
    help="Take a trained PyTorch checkpoint to production, and prove every step of the way.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"modelops {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
    _debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (anywhere in the line).")
    ] = False,
) -> None:
    pass


app.command()(export.init)
app.command()(export.export)
app.command()(look.inspect)
app.command()(look.verify)
app.command()(bench.bench)
app.command()(serve.serve)
app.command()(status.status)
app.add_typer(config.app)
app.command()(loadtest.loadtest)
app.command()(compare.compare)
app.add_typer(engine.app)
app.command()(trust.trust)
app.command()(doctor.doctor)


def usage_error(error: Exception) -> Exception:
    """Return what typer, a request's model or the system refused as our own, all else as it is."""
    if isinstance(error, MemoryError):
        return MissingEnvironmentError(f"this machine has too little memory for it: {error}")
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return MissingEnvironmentError(f"{error.strerror or error}{where}")
    asked = str(getattr(error, "title", "")).endswith(("Request", "TensorSpec", "Tolerance"))
    if type(error).__name__ == "ValidationError" and asked:
        problems = [
            ": ".join(
                filter(None, (".".join(map(str, e["loc"])), e["msg"].removeprefix("Value error, ")))
            )
            for e in error.errors()  # type: ignore[attr-defined]
        ]
        return UsageError("; ".join(problems))
    if not isinstance(error, _ClickException):
        return error
    text = error.format_message() if hasattr(error, "format_message") else str(error)
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "modelops"
    return UsageError(text, hint=f"{command} --help")


def main(argv: list[str] | None = None) -> None:
    """Run one command and exit with the code that DESIGN's table gives its outcome."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    as_json = "--json" in arguments
    arguments = [a for a in arguments if a != "--debug"]
    try:
        command = typer.main.get_command(app)
        # The list of commands needs no markup, and loading rich for it takes longer than the rest.
        command.rich_markup_mode = None  # type: ignore[attr-defined]
        code = command(arguments, prog_name="modelops", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("interrupted", err=True)
        code = 130
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.exit(2)
        known = usage_error(error)
        if debug and not isinstance(error, _ClickException):
            raise
        code = output.report_error(known, as_json=as_json)
    sys.exit(code)
