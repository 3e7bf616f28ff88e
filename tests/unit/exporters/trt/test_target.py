"""``--to tensorrt`` where there is no GPU, and what ``--plan`` says there."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from modelops.api import export as api
from modelops.errors import MissingEnvironmentError, UsageError
from modelops.tensorrt import find_gpu
from modelops_exporters.to_tensorrt import TensorRTExporter

pytest.importorskip("tensorrt_rtx")

RECIPE = """
import torch


def model():
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())


def inputs(batch=3):
    return {"input": torch.randn(batch, 6)}


dims = {"batch": (1, 64)}
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.chdir(tmp_path)
    linear = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())
    torch.save(linear.state_dict(), tmp_path / "net.pt")
    (tmp_path / "recipe.py").write_text(RECIPE)
    return {"source": str(tmp_path / "net.pt"), "recipe": Path("recipe.py"), "target": "tensorrt"}


def test_a_plan_tells_profile_chain_and_the_parsers_verdict(asked: dict[str, object]) -> None:
    before = sorted(Path().rglob("*"))
    found = api.plan(api.ExportRequest(**asked, options={"opt": "batch=5"}))
    assert found.details["profile"]["input"] == {"min": [1, 6], "opt": [5, 6], "max": [64, 6]}
    assert found.details["parser"].startswith("tensorrt")
    assert set(found.details["graph_dtypes"]) == {"float32"}
    assert "write tensorrt" in found.chain
    assert "float32[batch,6]" in str(api.plan_lines(found))
    assert [p for p in sorted(Path().rglob("*")) if "__pycache__" not in str(p)] == before


def test_any_target_has_a_plan(asked: dict[str, object]) -> None:
    found = api.plan(api.ExportRequest(**{**asked, "target": "onnx"}, precision="fp16"))
    assert found.precision == "fp16"
    assert found.chain[-4:] == ("convert to fp16", "check", "prove parity", "publish")
    assert not found.missing


def test_an_unknown_option_is_told_before_what_is_missing() -> None:
    with pytest.raises(UsageError, match="no option 'workspce'"):
        TensorRTExporter().require({"workspce": "1GiB"})


@pytest.mark.skipif(find_gpu() is not None, reason="there is a GPU here")
def test_without_a_gpu_nothing_is_loaded(asked: dict[str, object]) -> None:
    request = api.ExportRequest(**{**asked, "source": "no such file"})
    with pytest.raises(MissingEnvironmentError, match="built on the GPU that it is for") as caught:
        api.export(request)
    assert "--plan" in (caught.value.hint or "")
