"""Starting Python in an environment: nothing of this process leaks in, nothing outlives it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

# What would lead a child out of its environment, or its packages into another place.
UNSET = (
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__",
)  # fmt: skip
_PIP_UNSET = (
    "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_USER", "PIP_DRY_RUN", "PIP_REPORT",
    "PIP_REQUIREMENT", "PIP_EDITABLE", "PIP_NO_BINARY", "PIP_QUIET", "PIP_VERBOSE", "PIP_LOG",
)  # fmt: skip

# Runs a module or a file; the kernel kills it when the thread that started it ends, even by -9.
_TIED = """
import ctypes, os, runpy, sys
parent = int(sys.argv.pop(1))
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != parent:
    sys.exit("whoever started this is gone")
name = sys.argv.pop(1)
if name.endswith(".py"):
    runpy.run_path(name, run_name="__main__")
else:
    runpy.run_module(name, run_name="__main__", alter_sys=True)
"""


def environment_of(
    python: Path, variables: Mapping[str, str], base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return ``base`` (this process's environment) as a process of ``python`` needs it."""
    source = os.environ if base is None else base
    found = {k: v for k, v in source.items() if k not in UNSET}
    path = found.get("PATH", os.defpath)
    return found | {
        "PATH": f"{python.parent}{os.pathsep}{path}",
        "PYTHONNOUSERSITE": "1",
        **variables,
    }


def our_pip() -> Path | None:
    """Return the file by which this process's own pip runs in another environment, if it has one.

    With it an environment needs no pip inside, and its Python needs no ensurepip.
    """
    found = importlib.util.find_spec("pip")
    runner = Path(found.origin or "").with_name("__pip-runner__.py") if found else None
    return runner if runner is not None and runner.is_file() else None


def start_tied(
    python: Path,
    what: str,
    *arguments: str,
    temporary: Path | None = None,
    variables: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a module or a ``.py`` file with ``python``; it dies with this process.

    stdout and stderr are one pipe; ``temporary`` is where it keeps temporary files.
    """
    environment = environment_of(python, variables or {})
    for name in _PIP_UNSET:
        environment.pop(name, None)
    # The lock is all the constraint there is; one meant for another project would be in its way.
    environment |= {
        "PIP_CONSTRAINT": "",
        "PIP_NO_COLOR": "1",
        "COLUMNS": "200",
        "LC_ALL": "C.UTF-8",
    }
    if temporary is not None:
        environment["TMPDIR"] = str(temporary)
    return subprocess.Popen(
        [str(python), "-I", "-c", _TIED, str(os.getpid()), what, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
        errors="replace",
    )
