"""The tools that guard the source see all of it: import contracts and types."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from packaging_tools import REPOSITORY, ROOTS, copy_sources, run

_TOOLS = Path(sys.executable).parent


def lint_imports(folder: Path, *arguments: str) -> tuple[int, str]:
    paths = os.pathsep.join(str(folder / root) for root in ROOTS.values())
    done = run(_TOOLS / "lint-imports", "--no-cache", *arguments, cwd=folder, PYTHONPATH=paths)
    return done.returncode, done.stdout + done.stderr


def test_the_import_contracts_hold() -> None:
    code, told = lint_imports(REPOSITORY)
    assert code == 0, told
    assert "0 broken" in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "planted", "contract"),
    [
        ("src/modelops/artifact/planted.py", "import modelops.cli.main", "imports go one way"),
        ("src/modelops/planted.py", "import modelops_servers", "only through the registry"),
        (
            "servers/modelops_servers/planted.py",
            "import modelops_exporters",
            "never import each other",
        ),
        ("exporters/modelops_exporters/planted.py", "import fastapi", "Only servers imports"),
        ("servers/modelops_servers/planted.py", "import locust", "Only loadtests imports"),
        ("servers/modelops_servers/front/planted.py", "import torch", "neither torch nor"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, place: str, planted: str, contract: str) -> None:
    source = copy_sources(tmp_path / "source")
    (source / place).write_text(f'"""Planted."""\n\n{planted}\n')
    code, told = lint_imports(source)
    assert code == 1, told
    broken = " ".join(told.partition("Broken contracts")[2].split())
    assert contract in broken, told


def test_a_planted_type_error_is_found_in_each_package(tmp_path: Path) -> None:
    """A small tree with the project's own settings: each root, and nested packages."""
    (tmp_path / "pyproject.toml").write_text((REPOSITORY / "pyproject.toml").read_text())
    planted = []
    for package, root in ROOTS.items():
        folder = tmp_path / root / package / "deep" / "nested"
        folder.mkdir(parents=True)
        for parent in (folder, folder.parent, folder.parent.parent):
            (parent / "__init__.py").touch()
        (folder / "planted.py").write_text('value: int = "text"\n\n\ndef bare(x): ...\n')
        planted.append((folder / "planted.py").relative_to(tmp_path).as_posix())

    done = run(sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", cwd=tmp_path)

    assert done.returncode == 1, done.stdout + done.stderr
    for path in planted:
        assert f"{path}:1: error" in done.stdout
        assert f"{path}:4: error" in done.stdout
