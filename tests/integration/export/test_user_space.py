"""The user's own code: where it may come from, and what it can not do to the result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_hf
import torch
from model_zoo import Frames

from modelops.errors import InputError, VerificationError

pytestmark = pytest.mark.slow

FAKES = str(Path(__file__).parents[2] / "fakes")


def run(cwd: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modelops", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_c1_a_checkpoint_that_is_the_working_folder_runs_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    marker = tmp_path / "marker"
    for name in ("onnxscript", "accelerate", "http", "PIL", "sitecustomize", "yaml", "torchvision"):
        (folder / f"{name}.py").write_text(f"open({str(marker)!r}, 'w').write({name!r})")
    done = run(folder, "export", ".", "-o", "../out", "--memory-budget", "16MiB")
    assert not marker.exists(), marker.read_text()
    assert done.returncode == 0, done.stderr


def test_c1_the_working_folder_never_stands_in_for_a_library(tmp_path: Path) -> None:
    torch.save(Frames().state_dict(), tmp_path / "w.pt")
    (tmp_path / "net.py").write_text("from model_zoo import Frames\n")
    (tmp_path / "onnxscript.py").write_text("open('marker', 'w')")
    options = ["--model", "net:Frames", "--input", "x=float32[batch,frames,6]"]
    done = run(tmp_path, "export", "w.pt", *options, PYTHONPATH=FAKES)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "marker").exists()


def test_printing_does_not_reach_the_result(tmp_path: Path) -> None:
    torch.save(
        {k: torch.ones(s) for k, s in {"a.weight": (4, 4), "a.bias": 4}.items()}, tmp_path / "w.pt"
    )
    options = ["--model", "model_zoo:Prints", "--input", "x=float32[batch,4]", "--json"]
    done = run(tmp_path, "export", "w.pt", *options, PYTHONPATH=FAKES)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["version"] == 1
    assert "hello from forward" in done.stderr


def test_sys_exit_is_an_error_of_the_model(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sys\.exit\(0\).*model_zoo\.py:\d+"):
        export_zoo("Exits", "x=float32[batch,4]")
    assert not (tmp_path / "artifacts" / "Exits").exists()


def test_x1_a_size_remembered_from_the_first_call_is_not_published(
    export_zoo, tmp_path: Path
) -> None:
    with pytest.raises(VerificationError):
        export_zoo("Remembers", "x=float32[batch,4]")
    assert not (tmp_path / "artifacts" / "Remembers").exists()


@pytest.mark.parametrize("target", ["onnx", "torch-export"])
def test_a_home_that_cannot_be_written_publishes_nothing(tmp_path: Path, target: str) -> None:
    torch.save(Frames().state_dict(), tmp_path / "w.pt")
    options = ["--model", "model_zoo:Frames", "--input", "x=float32[batch,frames,6]"]
    done = run(
        tmp_path, "export", "w.pt", *options, "--to", target, "-o", "out", "--json",
        PYTHONPATH=FAKES, MODELOPS_TRUST_STORE="/proc/nowhere/trust.json",
    )  # fmt: skip
    if target == "onnx":
        assert done.returncode == 0, done.stderr
        return
    assert done.returncode == 5, done.stderr
    assert "MODELOPS_TRUST_STORE" in done.stdout
    assert not (tmp_path / "out").exists()
