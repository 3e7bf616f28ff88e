"""Finding, in an error out of torch, the line that the user wrote."""

from __future__ import annotations

import re
import sysconfig
import traceback
from pathlib import Path

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\w+)')
_HERE = str(Path(__file__).resolve().parent)
_LIBRARIES = tuple(
    {*(sysconfig.get_path(k) for k in ("stdlib", "platstdlib", "purelib", "platlib")), _HERE}
)


def user_line(error: BaseException) -> str | None:
    """Return ``file.py:12: the code`` of the innermost frame that is no library's, if any.

    Looks in the tracebacks of ``error`` and its causes, then in the frames that torch writes
    into its messages. The file is named relative to the working folder where it is below it.
    """
    frames: list[tuple[str, int]] = []
    seen: BaseException | None = error
    texts = []
    while seen is not None:
        texts.append(str(seen))
        frames += [(f.filename, f.lineno or 0) for f in traceback.extract_tb(seen.__traceback__)]
        seen = seen.__cause__ or seen.__context__
    own = [f for f in frames if _is_users(f[0])]
    return _spelled(*own[-1]) if own else line_in("\n".join(texts))


def line_in(text: str) -> str | None:
    """Return the innermost frame in ``text`` (as tracebacks print them) that is no library's."""
    own = [(m["file"], int(m["line"])) for m in _FRAME.finditer(text) if _is_users(m["file"])]
    return _spelled(*own[-1]) if own else None


def _spelled(file: str, line: int) -> str:
    return f"{_shown(file)}:{line}: {_code(file, line)}".rstrip(": ")


def _is_users(file: str) -> bool:
    return file.endswith(".py") and not file.startswith(_LIBRARIES) and "/modelops" not in file


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else path.name


def _code(file: str, line: int) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").splitlines()[line - 1].strip()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
