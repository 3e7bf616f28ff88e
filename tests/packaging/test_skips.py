"""MODELOPS_FORBID_SKIPS=1 leaves no way to pass by skipping."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from packaging_tools import REPOSITORY, run

pytestmark = pytest.mark.slow

_TESTS = """
import pytest

def test_passes(): ...

def test_skips():
    pytest.skip("no browser")

@pytest.mark.skipif(True, reason="marked")
def test_marked(): ...

@pytest.fixture
def absent():
    pytest.importorskip("not_there_at_all")

def test_in_a_fixture(absent): ...

@pytest.mark.xfail(strict=True, reason="known")
def test_expected_to_fail():
    assert False

@pytest.mark.browser
def test_browser(): ...

@pytest.mark.gpu
def test_gpu():
    pytest.skip("no GPU")
"""


@pytest.mark.parametrize(("forbid", "failed", "skipped"), [("1", 4, 0), ("0", 0, 4)])
def test_skips_fail_where_they_are_forbidden(
    tmp_path: Path, forbid: str, failed: int, skipped: int
) -> None:
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu: g\n    browser: b\n")

    pytest_run = (sys.executable, "-m", "pytest", "-q", "-m", "not gpu", "-p", "no:cacheprovider")
    done = run(*pytest_run, cwd=tmp_path, MODELOPS_FORBID_SKIPS=forbid, PATH="/nowhere")

    counts = dict.fromkeys(("failed", "error", "skipped"), 0)
    counts |= {
        w: int(n) for n, w in re.findall(r"(\d+) ([a-z]+?)s?\b", done.stdout.splitlines()[-1])
    }
    assert counts["failed"] + counts["error"] == failed
    assert counts["skipped"] == skipped
    assert (counts["passed"], counts["xfailed"], counts["deselected"]) == (1, 1, 1)


def test_a_module_that_skips_itself_fails_too(tmp_path: Path) -> None:
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text('import pytest\npytest.importorskip("not_there_at_all")\n')
    pytest_run = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(*pytest_run, cwd=tmp_path, MODELOPS_FORBID_SKIPS="1")
    assert done.returncode not in (0, 5)
