"""An engine that is installed for real, from wheels that the tests make."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from toy_engine import Toy

from modelops.environments import catalogue
from modelops.environments.installing import install_engine
from modelops.environments.record import Record


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which each test finds the same paths: environments cannot be moved."""
    return tmp_path_factory.mktemp("engines")


@pytest.fixture
def toy(base: Path, monkeypatch: pytest.MonkeyPatch) -> Toy:
    """Return the engine ``toy``, known to this process, in an empty folder of environments."""
    for name in ("toy", "engines"):
        shutil.rmtree(base / name, ignore_errors=True)
    (base / "toy").mkdir()
    toy = Toy(base / "toy")
    monkeypatch.setitem(catalogue.ENGINES, "toy", toy.engine())
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(base / "engines"))
    for name, value in toy.variables().items():
        monkeypatch.setenv(name, value)
    return toy


@pytest.fixture
def installed(toy: Toy, base: Path) -> Record:
    """Return the record of an installed ``toy``; the first test that asks installs it for all."""
    copy = base / "copy"
    if copy.exists():
        shutil.copytree(copy, base / "engines", symlinks=True)
    else:
        install_engine("toy")
        shutil.copytree(base / "engines", copy, symlinks=True)
    done = install_engine("toy")
    assert done.already == copy.exists()
    return done.record
