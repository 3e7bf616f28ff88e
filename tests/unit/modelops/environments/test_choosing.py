"""The build for this machine, and the Python that makes its environment."""

from __future__ import annotations

import platform
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from toy_engine import Toy, lock

from modelops.environments import choosing
from modelops.environments.catalogue import ENGINES, find_engine
from modelops.environments.choosing import (
    check_disk,
    check_machine,
    choose_builds,
    choose_python,
)
from modelops.errors import MissingEnvironmentError, UsageError

GPU = ("NVIDIA H100, 81559 MiB, 9.0, 580.1",)


def test_vllm_is_the_cuda_build_where_there_is_a_gpu() -> None:
    (choice,) = choose_builds(ENGINES["vllm"], GPU, None)
    assert choice.build.name == "cuda"
    assert "this machine has NVIDIA H100" in choice.why


def test_vllm_is_a_cpu_build_where_there_is_none_and_says_why() -> None:
    choices = choose_builds(ENGINES["vllm"], (), None)
    assert choices[-1].build.name == "cpu-community"
    assert "this machine has no GPU" in choices[-1].why
    assert all(c.build.platform == "cpu" for c in choices)


def test_what_comes_first_is_tried_first_once_it_is_locked(toy: Toy) -> None:
    (only,) = choose_builds(toy.engine(), (), None)
    assert only.build.name == "plain"
    assert "the best build is not locked" in only.why
    lock(toy.best, toy.pins)
    assert [c.build.name for c in choose_builds(toy.engine(), (), None)] == ["best", "plain"]


def test_a_build_that_was_asked_for_is_that_or_an_error(toy: Toy) -> None:
    (choice,) = choose_builds(toy.engine(), (), "fast")
    assert "asked for" in choice.why
    with pytest.raises(UsageError, match="no build 'quick'") as error:
        choose_builds(toy.engine(), (), "quick")
    assert error.value.hint == "one of: fast, best, plain"
    with pytest.raises(MissingEnvironmentError, match="nothing is installed without a hash"):
        choose_builds(toy.engine(), (), "best")


def test_an_unknown_engine_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no engine named 'vlm'"):
        find_engine("vlm")


@pytest.mark.parametrize(
    ("system", "machine", "libc", "said"),
    [
        ("Linux", "aarch64", ("glibc", "2.39"), "this is linux aarch64"),
        ("Darwin", "x86_64", ("", ""), "this is darwin x86_64"),
        ("Linux", "x86_64", ("glibc", "2.4"), "needs glibc 2.5 or newer"),
        ("Linux", "x86_64", ("", ""), "another C library"),
    ],
)
def test_another_machine_is_told_what_the_locks_are_for(
    toy: Toy, monkeypatch: pytest.MonkeyPatch, system: str, machine: str, libc: object, said: str
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: libc)
    with pytest.raises(MissingEnvironmentError, match=said) as error:
        check_machine("toy", toy.engine().build("plain"))
    assert "--python PATH" in str(error.value.hint)


def test_the_python_is_the_one_that_runs_this_where_it_is_locked(toy: Toy) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found = choose_python(toy.engine().build("plain"), ("3.99", ours))
    assert found == Path(sys._base_executable)  # type: ignore[attr-defined]


def test_without_a_python_that_is_locked_the_error_names_them(toy: Toy) -> None:
    with pytest.raises(MissingEnvironmentError, match=r"locked for Python 3\.98, 3\.99") as error:
        choose_python(toy.engine().build("plain"), ("3.98", "3.99"))
    assert "install Python 3.98" in str(error.value.hint)


def test_a_python_without_venv_is_told_its_package(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    monkeypatch.setattr(choosing, "_version", lambda _: None)
    with pytest.raises(MissingEnvironmentError, match="venv or ensurepip is missing") as error:
        choose_python(toy.engine().build("plain"), (ours,))
    assert error.value.hint == f"apt-get install python{ours}-venv"


def test_another_python_on_the_path_will_do(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "bin" / "python3.99"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 3.99\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent), prepend=":")
    assert choose_python(toy.engine().build("plain"), ("3.99",)) == other


def test_a_disk_without_room_is_told_before_anything_is_fetched(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=999))
    with pytest.raises(MissingEnvironmentError, match=r"has 0\.0 GB free") as error:
        check_disk(toy.engine().build("plain"), tmp_path)
    assert "--engines-dir" in str(error.value.hint)
