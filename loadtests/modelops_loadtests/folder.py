"""Where a run's report is written."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from modelops.errors import InputError
from modelops_loadtests.spec import RunSpec


def make_folder(spec: RunSpec) -> Path:
    """Make the report's folder; a default name that is taken gets a number.

    A folder that was named may hold an earlier report of this tool, which is replaced.

    Raises:
        InputError: it cannot be made.
    """
    try:
        if spec.output is not None:
            spec.output.mkdir(parents=True, exist_ok=True)
            return spec.output
        stem = f"{'-'.join(spec.weights)}-{datetime.now():%Y%m%d-%H%M%S}"
        for number in range(1, 1000):
            folder = Path("reports") / (stem if number == 1 else f"{stem}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise InputError(
            f"cannot make the report's folder: {error}", hint="choose one with -o"
        ) from error
    raise InputError(f"reports/{stem} and 998 more are taken", hint="choose one with -o")
