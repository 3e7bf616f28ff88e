"""What pip installs is whole: every module, template and py.typed, from wheel and sdist."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging_tools import (
    REPOSITORY,
    ROOTS,
    Built,
    copy_sources,
    fresh_environment,
    packaged_files,
    run,
)

_IMPORT_ALL = """
import importlib, json, pkgutil, sys, warnings
warnings.simplefilter("ignore")
failed, seen = {}, {}
for package in sys.argv[1:]:
    names = [package]
    for name in names:
        if name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(name)
            seen[name] = module.__file__
            for public in getattr(module, "__all__", ()):
                getattr(module, public)
            for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
                names.append(f"{name}.{found.name}")
        except BaseException as error:
            failed[name] = f"{type(error).__name__}: {error}"
print("\\n" + json.dumps({"failed": failed, "seen": seen}))
"""


@pytest.mark.slow
def test_the_wheel_holds_every_file(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        held = set(wheel.namelist())
    missing = packaged_files() - held
    assert not missing
    assert {f"{package}/py.typed" for package in ROOTS} <= held
    foreign = {n.split("/")[0] for n in held} - set(ROOTS)
    assert foreign == {"modelops-" + built.wheel.name.split("-")[1] + ".dist-info"}


@pytest.mark.slow
def test_the_sdist_holds_every_file(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        held = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    wanted = {f"{ROOTS[name.split('/')[0]]}/{name}" for name in packaged_files()}
    missing = wanted | {"pyproject.toml", "README.md", "LICENSE"}
    assert not missing - held


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_every_module_imports_where_it_was_installed(
    built: Built, kind: str, tmp_path: Path
) -> None:
    wheel = built.wheel
    if kind == "sdist":
        pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index")
        out = tmp_path / "from_sdist"
        done = run(*pip, "--no-build-isolation", "-w", out, built.sdist, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (wheel,) = out.glob("*.whl")
    python = fresh_environment(tmp_path / "env", wheel)

    done = run(python, "-c", _IMPORT_ALL, *ROOTS, cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-4000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["failed"] == {}
    modules = {n for n in packaged_files() if n.endswith(".py") and "__main__" not in n}
    assert len(told["seen"]) == len(modules)
    elsewhere = [f for f in told["seen"].values() if f and str(tmp_path / "env") not in f]
    assert elsewhere == []
    version = run(tmp_path / "env" / "bin" / "modelops", "--version", cwd=tmp_path)
    assert version.stdout.startswith("modelops ")


@pytest.mark.slow
def test_an_editable_installation_sees_new_packages(tmp_path: Path) -> None:
    source = copy_sources(tmp_path / "source")
    code = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
    done = run(sys.executable, "-c", code, tmp_path, cwd=source)
    assert done.returncode == 0, done.stderr[-4000:]
    (wheel,) = tmp_path.glob("*.whl")
    python = fresh_environment(tmp_path / "env", wheel)

    for package, root in ROOTS.items():
        new = source / root / package / "brand_new" / "nested"
        new.mkdir(parents=True)
        (new.parent / "__init__.py").touch()
        (new / "__init__.py").write_text("here = __file__\n")
        code = f"from {package}.brand_new.nested import here; print(here)"
        seen = run(python, "-c", code, cwd=tmp_path)
        assert seen.stdout.strip() == str(new / "__init__.py"), seen.stderr


def test_every_requirement_has_a_tested_version() -> None:
    import re
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    lines = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        lines += extra
    asked = {_normal(re.split(r"[\[<>=!~; ]", line)[0]) for line in lines}
    pinned = {
        _normal(line.split("==")[0])
        for line in (REPOSITORY / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert asked - pinned == {"modelops", "torch"}


def _normal(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
