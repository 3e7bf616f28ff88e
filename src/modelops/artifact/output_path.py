"""Where an export may be written: never through a link that somebody may have planted."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from modelops.errors import IntegrityError, UsageError


def check_output(root: Path) -> None:
    """Refuse an output folder whose path, as typed, leads through a symbolic link.

    A relative path is checked behind its leading ``..``; an absolute one below the working
    folder, the home or the temporary folder, whichever holds it most closely, and where none
    does, in its last three steps. What lies above is the machine's own arrangement.

    Raises:
        IntegrityError: a step is a link.
        UsageError: a step is a file.
    """
    for step in _suspects(root):
        if step.is_symlink():
            raise IntegrityError(
                f"will not write to {root}: {step} is a link to {os.readlink(step)}",  # noqa: PTH115
                hint=f"remove the link, or give the real folder: -o {os.path.realpath(root)}",
            )
        if step.exists() and not step.is_dir():
            raise UsageError(f"cannot write to {root}: {step} is not a folder")


def _suspects(root: Path) -> Iterator[Path]:
    steps = [Path(*root.parts[: n + 1]) for n in range(len(root.parts))]
    if not root.is_absolute():
        outward = next((n for n, p in enumerate(root.parts) if p != ".."), len(steps))
        return iter(steps[outward:])
    bases = (Path.cwd(), _home(), Path(tempfile.gettempdir()))
    depths = [len(b.parts) for b in bases if b is not None and root.is_relative_to(b)]
    own = max((d for d in depths if d > 1), default=None)
    return iter(steps[own:] if own is not None else steps[1:][-3:])


def _home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
