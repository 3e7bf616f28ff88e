"""The argument parser of vLLM's wheel for CUDA takes all that is emitted for it.

A third of a gigabyte is fetched, so this is not among ``make test``: ``make cuda-flags`` runs it
and renews the record (``tests/golden/vllm-cuda-flags.json``), with which every run of the tests
compares what is emitted (``tests/unit/servers/keeper/test_cuda_flags.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import cuda_launches
import parse_as_cuda
import pytest

from modelops.environments import find_environment
from modelops_servers.keeper.kv_cache import BACKEND

pytestmark = [pytest.mark.cuda_wheel, pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the locked wheel in a folder inside .venv, fetched and checked once."""
    locked = cuda_launches.locked_wheel()
    kept = Path(sys.prefix) / "wheels" / f"vllm-{locked.version}-{locked.sha256[:8]}"
    if kept.is_dir():
        return kept
    folder = tmp_path_factory.mktemp("wheel")
    pinned = folder / "requirements.txt"
    pinned.write_text(locked.requirement + "\n")
    options = ["--no-deps", "--require-hashes", "--only-binary", ":all:", "-d", str(folder)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
    subprocess.run([*pip, "-r", str(pinned)], check=True, timeout=1200)
    (file,) = folder.glob("*.whl")
    made = folder / "unpacked"
    with zipfile.ZipFile(file) as archive:
        # Nothing that is compiled: it wants a driver, and is ten times as large as all else.
        names = [n for n in archive.namelist() if not n.endswith((".so", "/vllm-rs"))]
        archive.extractall(made, names)
    file.unlink()
    kept.parent.mkdir(exist_ok=True)
    shutil.move(made, kept)
    return kept


def test_its_own_parser_takes_every_argument_that_is_emitted(
    wheel: Path, vllm_installed: Path
) -> None:
    """Run with MODELOPS_UPDATE_GOLDEN=1 to accept what it says.

    The CUDA wheel's own: all Python of vLLM with its version, the parser, its choices and types,
    the platform CudaPlatform (without NVML), the attention backends. Not its own: the packages
    beside it, which are those of the CPU build's environment, torch among them; and its compiled
    kernels, of which one is imported by that platform and is an empty module here. So this says
    that what is emitted is understood, and nothing of what a GPU makes of it.
    """
    lines, variables = cuda_launches.emitted()
    flags = sorted({flag for line in lines for flag in cuda_launches.flags_of(line)})
    python = find_environment("vllm", vllm_installed)
    done = subprocess.run(
        [python.python, parse_as_cuda.__file__],
        input=json.dumps(
            {"lines": lines, "flags": flags, "backend": BACKEND, "variables": sorted(variables)}
        ),
        env=python.environment() | variables | {"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert Path(found.pop("from")).is_relative_to(wheel)
    locked = cuda_launches.locked_wheel()
    assert (found["version"], found["platform"]) == (locked.version, "cuda")
    record = {"sha256": locked.sha256, **found, "lines": lines}
    if os.environ.get("MODELOPS_UPDATE_GOLDEN") == "1":
        cuda_launches.RECORD.write_text(json.dumps(record, indent=1) + "\n")
    assert record == cuda_launches.read_record()
