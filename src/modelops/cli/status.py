"""``modelops status``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from modelops.cli import output

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from modelops.api.status import FrontStatus, GatewayStatus, ModelStatus, ReplicaStatus

    _Told = ModelStatus | ReplicaStatus | FrontStatus

WATCH_SECONDS = 2.0
_NOT_READY = 5


def status(
    url: Annotated[
        str, typer.Argument(metavar="[URL]", help="The gateway's address.")
    ] = "http://127.0.0.1:8080",
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="MODELOPS_API_KEY",
            help="Sent as a bearer token. A gateway needs none for this; what is before it may.",
            show_envvar=True,
            show_default=False,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every 2 s, until Ctrl-C.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Say which models of a running gateway are ready, why not, since when, and what is next.

    Exit code 0 when the gateway is ready, 5 when it is not or cannot be reached, 3 when what
    answers is not modelops. With --watch, --json prints one line for each look.

    Examples:

        modelops status

        modelops status https://models.example.com --json

        modelops status 127.0.0.1:9000 --watch
    """
    from pydantic import SecretStr

    from modelops.api import status as api

    base = api.base_url(url)
    key = SecretStr(api_key) if api_key else None

    def look() -> GatewayStatus:
        return api.status(base, key)

    if watch:
        _watch(look, as_json)
    found = look()
    output.emit(found, as_json=as_json, show=None if as_json else show_status(found))
    if not found.ready:
        raise typer.Exit(_NOT_READY)


def _watch(look: Callable[[], GatewayStatus], as_json: bool) -> NoReturn:
    """Look until interrupted; a gateway that cannot be reached is looked for again."""
    import sys
    import time

    from modelops.errors import InputError, MissingEnvironmentError
    from modelops.report.terminal import plain

    def told() -> tuple[GatewayStatus | dict[str, object], RenderableType]:
        try:
            found = look()
        except (InputError, MissingEnvironmentError) as error:
            return {"ready": False, "error": error.message}, plain(error.message, "red")
        return found, show_status(found)

    if as_json or sys.stdout is None or not sys.stdout.isatty():
        while True:
            result, shown = told()
            output.emit(result, as_json=as_json, show=shown)
            time.sleep(WATCH_SECONDS)
    from rich.live import Live

    with Live(auto_refresh=False, screen=True) as live:
        while True:
            live.update(told()[1], refresh=True)
            time.sleep(WATCH_SECONDS)


def show_status(found: GatewayStatus) -> RenderableType:
    """Return one table: a row for each version, and for what is or was amiss."""
    from rich.console import Group
    from rich.text import Text

    from modelops.report.terminal import grid, plain

    headings = ("model", "version", "state", "why", "since", "next")
    table = grid(*((heading, "left") for heading in headings))
    for model in found.models:
        _add(table, model, found.now)
    for front in found.fronts:
        if front.state != "ready" or front.restarts:
            again = f"{front.restarts} restarts" if front.state == "ready" else front.next
            table.add_row(*_cells(f"front {front.index}", "", front, again, found.now))
    headline = f"{found.url} is ready" if found.ready else f"{found.url} is not ready"
    return Group(plain(headline, "green" if found.ready else "bold red"), Text(), table)


def _add(table: Table, model: ModelStatus, now: datetime) -> None:
    table.add_row(*_cells(model.name, model.version or "–", model, model.next, now))
    amiss = any(r.state != model.state or r.restarts for r in model.replicas)
    for replica in model.replicas if amiss else ():
        again = f"{replica.restarts} restarts" if replica.restarts else ""
        table.add_row(*_cells(f"  {replica.id}", "", replica, again, now))


def _cells(
    name: str,
    version: str,
    told: _Told,
    following: str,
    now: datetime,
) -> list[Text]:
    from modelops.report.terminal import plain

    tone = {"ready": "green", "loading": "yellow"}.get(told.state, "bold red")
    state = plain(told.state, tone)
    after = (plain(told.why), plain(ago(told.since, now)), plain(following))
    return [plain(name), plain(version), state, *after]


def ago(since: datetime | None, now: datetime) -> str:
    """Return how long ago something was, in its largest unit."""
    if since is None:
        return "–"
    if since.tzinfo is None:
        since = since.replace(tzinfo=now.tzinfo)
    past = int((now - since).total_seconds())
    if past < 1:
        return "just now"
    for seconds, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if past >= seconds:
            count = past // seconds
            return f"{count} {'day' if (count, unit) == (1, 'days') else unit} ago"
    return f"{past} s ago"
