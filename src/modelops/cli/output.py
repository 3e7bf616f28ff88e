"""How every command speaks: one result on stdout, all else on stderr, errors in one form."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modelops.errors import MissingEnvironmentError, ModelopsError
from modelops.progress import Progress

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one machine-readable result on stdout.")
]


def emit(result: BaseModel | dict[str, Any], *, as_json: bool, show: RenderableType | None) -> None:
    """Print ``result`` as JSON, or ``show`` (a rich renderable) for a person.

    Raises:
        MissingEnvironmentError: stdout is closed.
    """
    if sys.stdout is None:
        raise MissingEnvironmentError("stdout is closed: the work is done, its result untold")
    if as_json:
        if isinstance(result, dict):
            text = json.dumps(result, ensure_ascii=False, allow_nan=False)
        else:
            text = result.model_dump_json()
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        return
    from rich.console import Console

    Console(soft_wrap=not sys.stdout.isatty()).print(show)


def note(text: str) -> None:
    """Tell the person at the terminal something that is not the result."""
    typer.echo(text, err=True)


@contextlib.contextmanager
def progress() -> Iterator[Progress]:
    """Yield a Progress: a spinner where stderr is a terminal, a line a step elsewhere."""
    if not sys.stderr.isatty():
        yield note
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(step)


def report_error(error: BaseException, *, as_json: bool) -> int:
    """Print ``error`` in the form asked for and return the exit code it stands for."""
    known = isinstance(error, ModelopsError)
    message = error.message if isinstance(error, ModelopsError) else _unexpected(error)
    hint = error.hint if isinstance(error, ModelopsError) else "run again with --debug, and report"
    code = error.exit_code if isinstance(error, ModelopsError) else 1
    if as_json:
        body = {
            "error": {
                "type": type(error).__name__ if known else "InternalError",
                "message": message,
                "hint": hint,
                "exit_code": code,
            }
        }
        # Where stdout itself is what failed, stderr below still tells.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
            sys.stdout.flush()
    typer.secho("error: ", fg="red", bold=True, nl=False, err=True)
    typer.echo(message, err=True)
    if hint:
        typer.secho("  fix: ", fg="green", nl=False, err=True)
        typer.echo(hint, err=True)
    return code


def _unexpected(error: BaseException) -> str:
    return f"this is a bug in modelops: {type(error).__name__}: {error}"
