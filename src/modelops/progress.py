"""How long work tells what it is doing, without knowing who listens."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str], None]
"""Called with a short phrase at the start of each step, such as ``"checking parity 3/5"``."""


def silent(_step: str) -> None:
    """Tell nobody."""
