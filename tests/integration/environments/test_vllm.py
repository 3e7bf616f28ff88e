"""The real vLLM, in the environment that ``modelops engine install vllm`` makes."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from modelops.doctor.machine import gpus
from modelops.environments import EngineEnvironment, find_environment, install_engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@pytest.fixture
def vllm(vllm_installed: Path) -> EngineEnvironment:
    return find_environment("vllm", vllm_installed)


def test_it_is_the_build_for_this_machine_in_the_locked_versions(vllm: EngineEnvironment) -> None:
    assert vllm.platform == ("cuda" if gpus() else "cpu")
    assert (vllm.version.split("+")[0], vllm.kind, vllm.current) == ("0.32.0", "managed", True)
    assert vllm.versions["fastapi"] < "0.137"
    assert vllm.versions["transformers"] < "5.20"
    if vllm.platform == "cpu":
        assert vllm.versions["torch"].endswith("+cpu")
        assert not {"torchvision", "torchaudio", "torchcodec"} & set(vllm.versions)
    assert {"auto", "fp8"} <= set(vllm.flags["--kv-cache-dtype"] or ())


def test_its_command_starts(vllm: EngineEnvironment) -> None:
    """That of the community's build fails unless it is mended; servers start in other tests."""
    done = subprocess.run(
        [str(vllm.python.with_name("vllm")), "--version"],
        env=vllm.environment(),
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().startswith("0.32.0")


def test_a_second_time_costs_seconds_and_imports_nothing_of_it(vllm_installed: Path) -> None:
    began = time.monotonic()
    code = (
        "import sys; from modelops.environments import *; from pathlib import Path\n"
        f"folder = Path({str(vllm_installed)!r})\n"
        "done = install_engine('vllm', folder=folder); find_environment('vllm', folder)\n"
        "print(done.already, {'vllm', 'torch', 'transformers'} & set(sys.modules))"
    )
    if gpus():
        pytest.skip("the build without a GPU is asked for")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True set()"
    assert time.monotonic() - began < 60


def test_it_can_be_told_as_ones_own_and_stays_as_it_is(
    vllm: EngineEnvironment, tmp_path: Path
) -> None:
    noted = install_engine("vllm", folder=tmp_path / "engines", python=vllm.python).record
    assert (noted.kind, noted.version.split("+")[0], noted.notes) == ("own", "0.32.0", ())
    assert find_environment("vllm", tmp_path / "engines").python == vllm.python


def test_the_doctor_tells_of_it(vllm_installed: Path) -> None:
    argv = [sys.executable, "-m", "modelops", "doctor", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=280)
    (found,) = [f for f in json.loads(done.stdout)["findings"] if f["area"] == "engine"]
    assert (found["name"], found["status"], found["fix"]) == ("vllm", "ok", None)
    assert str(vllm_installed) in found["value"]
