"""Where the user's own code may run: what it may import, print, and end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from modelops.errors import InputError
from modelops.requests import ExportRequest
from modelops_exporters.user_code import user_line


def code_folders(request: ExportRequest) -> tuple[Path, ...]:
    """Return the folders that a factory, recipe or metric may import from; none without any.

    Never one inside the checkpoint: what lies beside weights came with them, and must not run.
    """
    folders: list[Path] = []
    if request.recipe is not None:
        folders.append(request.recipe.resolve().parent)
    if (request.recipe, request.model, request.metric) != (None, None, None):
        folders.append(Path.cwd().resolve())
    source = Path(request.source).expanduser()
    carried = source.resolve() if source.is_dir() else None
    return tuple(f for f in folders if carried is None or not f.is_relative_to(carried))


@contextlib.contextmanager
def user_space(*folders: Path) -> Iterator[None]:
    """Let modules in ``folders`` be imported, keep stdout for the result, and outlive sys.exit().

    The folders come last on the search path: a file there never stands in for a library.

    Raises:
        InputError: the user's code called sys.exit().
    """
    added = [str(f) for f in folders]
    sys.path.extend(added)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except SystemExit as error:
        where = user_line(error)
        raise InputError(
            f"the model's own code ends the process: sys.exit({error.code!r})"
            + (f" ({where})" if where else ""),
            hint="raise an error in its place, or keep it under if __name__ == '__main__'",
        ) from error
    finally:
        for folder in added:
            if folder in sys.path:
                sys.path.remove(folder)
