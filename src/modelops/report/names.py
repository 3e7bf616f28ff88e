"""Names that strangers gave things, made harmless to show."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return ``text`` with every character that does not print, but a newline, escaped.

    Terminal control sequences and the marks that reverse the direction of text are such.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
