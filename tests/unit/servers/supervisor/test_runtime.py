"""The folder of the sockets: private, gone with its owner, and never somebody else's."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from modelops.errors import MissingEnvironmentError
from modelops_servers.supervisor.runtime import RuntimeFolder


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a folder for temporary files of the test's own, with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def age(folder: Path) -> None:
    old = time.time() - 3600
    os.utime(folder, (old, old))


def test_it_is_private_and_goes_with_all_that_is_in_it(temporary: Path) -> None:
    runtime = RuntimeFolder()
    assert runtime.path.parent == temporary
    assert stat.S_IMODE(runtime.path.stat().st_mode) == 0o700
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(runtime.path / ("0@" + "f" * 16 + ".1234567.sock")))
    runtime.close()
    runtime.close()
    assert list(temporary.iterdir()) == []


def test_what_a_killed_owner_left_is_removed_by_the_next(temporary: Path) -> None:
    code = (
        "import os, signal\n"
        "from modelops_servers.supervisor.runtime import RuntimeFolder\n"
        "kept = RuntimeFolder()\n"
        "(kept.path / 's').touch()\n"
        "print(kept.path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert done.returncode == -signal.SIGKILL
    left = Path(done.stdout.strip())
    assert left.is_dir()
    age(left)
    runtime = RuntimeFolder()
    assert not left.exists()
    runtime.close()


def test_what_is_in_use_young_or_of_another_kind_stays(temporary: Path) -> None:
    used = RuntimeFolder()
    age(used.path)
    young = temporary / "modelops-run-young"
    other = temporary / "modelops-export-1"
    file = temporary / "modelops-run-file"
    target = temporary / "target"
    link = temporary / "modelops-run-link"
    for folder in (young, other, target):
        folder.mkdir()
    file.touch()
    link.symlink_to(target)
    for path in (other, file, target):
        age(path)
    RuntimeFolder().close()
    assert all(p.exists() for p in (used.path, young, other, file, target, link))
    used.close()


def test_a_path_too_long_for_sockets_is_told_before_anything_starts(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = temporary / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with pytest.raises(MissingEnvironmentError, match="too long") as caught:
        RuntimeFolder()
    assert "TMPDIR" in (caught.value.hint or "")
    assert list(long.iterdir()) == []


def test_no_folder_for_temporary_files_is_told(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(temporary / "nowhere"))
    with pytest.raises(MissingEnvironmentError, match="no folder"):
        RuntimeFolder()
