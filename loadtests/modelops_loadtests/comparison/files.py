"""A comparison from the paths of runs to a page, a JSON file and the result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from modelops import __version__
from modelops.errors import InputError
from modelops.progress import Progress, silent
from modelops_loadtests.comparison.compare import compare
from modelops_loadtests.comparison.page import page
from modelops_loadtests.comparison.run import Run
from modelops_loadtests.gates import parse_regressions


def compare_files(options: Mapping[str, Any], progress: Progress = silent) -> dict[str, Any]:
    """Compare the runs at ``a`` with those at ``b`` and write compare.html and compare.json.

    ``options`` are the fields of ``modelops.api.compare.CompareRequest``. Returns what ``compare``
    does, with ``written_at``, ``modelops`` and ``files``.

    Raises:
        UsageError: a limit cannot be meant, or the sides do not fit each other.
        InputError: a run cannot be read, or the files cannot be written.
    """
    limits = parse_regressions(options["max_regression"])
    a, b = (_read(options[side], progress) for side in ("a", "b"))
    progress("comparing")
    result = compare(a, b, limits, allow_invalid=options["allow_invalid"])
    folder = _folder(options["output"])
    result |= {
        "modelops": __version__,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": {
            "report": str(folder / "compare.html"),
            "json": str(folder / "compare.json"),
        },
    }
    progress("writing the page")
    text = orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    try:
        (folder / "compare.json").write_bytes(text)
        (folder / "compare.html").write_text(page(result, a, b), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write to {folder}: {error}", hint="choose one with -o") from error
    return result


def _read(paths: Sequence[Path], progress: Progress) -> list[Run]:
    found = []
    for path in paths:
        progress(f"reading {path}")
        found.append(Run.read(path))
    return found


def _folder(output: Path | None) -> Path:
    """Make the folder that was named, else a new one below ``reports``."""
    stem = f"compare-{datetime.now():%Y%m%d-%H%M%S}"
    names = [stem, *(f"{stem}-{number}" for number in range(2, 1000))]
    try:
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            return output
        for name in names:
            folder = Path("reports") / name
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return folder
    except OSError as error:
        raise InputError(f"cannot make a folder: {error}", hint="choose one with -o") from error
    raise InputError(f"reports/{stem} and 998 more are taken", hint="choose one with -o")
