"""Text for a terminal: what a stranger's names hold is shown, never obeyed."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from modelops.report.names import printable


def plain(value: object, style: str = "") -> Text:
    """Return ``value`` as text without markup; characters that do not print are escaped."""
    return Text(printable(str(value)), style=style)


def grid(*headings: tuple[str, str]) -> Table:
    """Return an empty table; each heading is its text and ``left`` or ``right``."""
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading, side in headings:
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    return table


def pairs(items: Iterable[tuple[str, object]]) -> Table:
    """Return a table of terms and values without headings; values of None are left out."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for term, value in items:
        if value is not None:
            table.add_row(plain(term), value if isinstance(value, Text) else plain(value))
    return table
