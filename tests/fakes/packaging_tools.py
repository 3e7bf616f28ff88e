"""The four source roots, copies of them, and fresh environments to install into."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
ROOTS = {
    "modelops": "src",
    "modelops_exporters": "exporters",
    "modelops_servers": "servers",
    "modelops_loadtests": "loadtests",
}
_IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*_cache")


@dataclass(frozen=True)
class Built:
    """The two distributions of one build."""

    sdist: Path
    wheel: Path


def run(*argv: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without raising; ``environment`` is added to this process's."""
    return subprocess.run(
        [str(a) for a in argv],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def copy_sources(to: Path) -> Path:
    """Copy what a distribution is built from, so that the checkout stays as it is."""
    to.mkdir(parents=True, exist_ok=True)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, to / name)
    for root in ROOTS.values():
        shutil.copytree(REPOSITORY / root, to / root, ignore=_IGNORED)
    return to


def packaged_files() -> set[str]:
    """Return every file that an installation must hold, by its path in site-packages."""
    return {
        path.relative_to(REPOSITORY / root).as_posix()
        for package, root in ROOTS.items()
        for path in (REPOSITORY / root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def fresh_environment(folder: Path, wheel: Path) -> Path:
    """Install ``wheel`` into a new environment and return its python.

    The environment has no packages of its own; those of this one come last on its path, so
    nothing is downloaded, and this one's editable installation is not seen.
    """
    made = run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    assert made.returncode == 0, made.stderr
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index")
    installed = run(*pip, wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    theirs = folder / "lib" / version / "site-packages" / "zz_last.pth"
    ours = [p for p in sys.path if p.endswith("site-packages")]
    theirs.write_text("\n".join(ours) + "\n")
    return python
