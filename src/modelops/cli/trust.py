"""``modelops trust``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from modelops.cli import output
from modelops.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType


def trust(
    directory: Annotated[
        Path | None,
        typer.Argument(metavar="[DIR]", help="The artifact to trust.", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List what is trusted.")] = False,
    remove: Annotated[
        str | None,
        typer.Option(metavar="DIGEST|DIR", help="Stop trusting this one.", show_default=False),
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Allow an artifact whose format is code (.pt2, AOTInductor, TensorRT) to run here.

    Its files are checked, and its digest goes into your trust store: another artifact, or this
    one after any change, is not covered. ONNX artifacts are data and need no trust.

    Examples:

        modelops trust artifacts/resnet/2

        modelops trust --list

        modelops trust --remove artifacts/resnet/2
    """
    if (directory is not None) + show + (remove is not None) != 1:
        raise UsageError("give a folder to trust, --list, or --remove", hint="modelops trust -h")
    if show:
        _list(as_json)
    elif remove is not None:
        _remove(remove, as_json)
    elif directory is not None:
        _add(directory, as_json)


def _add(directory: Path, as_json: bool) -> None:
    from modelops.api.trust import trust_artifact

    with output.progress() as progress:
        decision = trust_artifact(directory, progress)
    lines = [f"{'already trusted' if decision.already else 'trusted'}: {decision.name}"]
    lines += [
        f"  {label:<7} {value}"
        for label, value in (
            ("folder", decision.path),
            ("digest", decision.digest),
            ("format", decision.format),
            ("source", decision.source),
        )
    ]
    if not decision.needed:
        lines.append(f"{decision.format} is data: it did not need this")
    output.emit(decision, as_json=as_json, show=_plain("\n".join(lines)))


def _list(as_json: bool) -> None:
    import time

    from modelops.api.trust import list_trusted

    entries = list_trusted()
    lines = [
        f"{e.digest}  {time.strftime('%Y-%m-%d', time.localtime(e.added))}  {e.how:<8}  {e.name}"
        for e in entries
    ]
    output.emit(
        {"trusted": [e.model_dump(mode="json") for e in entries]},
        as_json=as_json,
        show=_plain("\n".join(lines) or "nothing is trusted yet"),
    )


def _remove(what: str, as_json: bool) -> None:
    from modelops.api.trust import remove_trust

    digest = remove_trust(what)
    output.emit({"removed": digest}, as_json=as_json, show=_plain(f"no longer trusted: {digest}"))


def _plain(text: str) -> RenderableType:
    # A name from a manifest must not be read as markup.
    from rich.text import Text

    return Text(text)
