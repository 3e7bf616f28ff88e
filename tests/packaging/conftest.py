"""The two distributions, built once."""

from __future__ import annotations

import sys

import pytest
from packaging_tools import Built, copy_sources, run


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build the sdist from the sources, and the wheel from the sdist."""
    source = copy_sources(tmp_path_factory.mktemp("build") / "modelops")
    out = source.parent / "dist"
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source, cwd=source)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return Built(sdist=sdist, wheel=wheel)
