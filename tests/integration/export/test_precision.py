"""Exports to fp16 and int8: what comes out is what was asked, and right, or is not published."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from modelops.api.export import ExportRequest, export
from modelops.artifact import open_artifact, versions
from modelops.errors import MissingEnvironmentError, ParityError, UsageError

pytestmark = pytest.mark.slow

RECIPE = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.first = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU()
        )
        self.second = nn.Sequential(
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer)
        )
        self.short = nn.Conv2d(inner, outer, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        return torch.relu(self.second(self.first(x)) + self.short(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 32, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2))
        self.blocks = nn.Sequential(Block(32, 32, 1), Block(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, image):
        return self.head(self.blocks(self.stem(image)).mean((2, 3)))


class Square(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def forward(self, x):
        return ((self.layer(x) * 300) ** 2).log1p()


dims = {"batch": (1, 4)}
"""
RESNET = """
def model():
    return ResNet()


def inputs(batch=3):
    return {"image": torch.randn(batch, 3, 16, 16)}
"""
SQUARE = """
def model():
    return Square()


def inputs(batch=3):
    return {"x": torch.randn(batch, 16)}
"""


def prepare(folder: Path, ending: str) -> dict[str, object]:
    """Write a recipe, a checkpoint of its model, and structured inputs; return the request's."""
    (folder / "recipe.py").write_text(RECIPE + ending)
    space: dict[str, object] = {}
    exec(RECIPE + ending, space)
    torch.manual_seed(4)
    model = space["model"]()  # type: ignore[operator]
    torch.save({"state_dict": model.state_dict()}, folder / "net.ckpt")
    images = np.random.default_rng(5).standard_normal((24, 3, 16, 16)).astype(np.float32)
    np.savez(folder / "data.npz", image=np.cumsum(images, axis=-1) / 4)
    return {
        "source": str(folder / "net.ckpt"),
        "recipe": folder / "recipe.py",
        "output": folder / "out",
        "memory_budget": 2**24,
    }


def test_resnet_in_int8(tmp_path: Path) -> None:
    fields = prepare(tmp_path, RESNET)
    result = export(
        ExportRequest(**fields, precision="int8", calibration=tmp_path / "data.npz")  # type: ignore[arg-type]
    )
    manifest = open_artifact(result.path).manifest
    assert (manifest.precision.asked, manifest.precision.found) == ("int8", "int8")
    quantization = manifest.quantization or {}
    assert quantization["calibration"]["items"] == 24
    assert quantization["nodes"] - len(quantization["left_in_float"]) >= 4
    graph = onnx.load(result.path / "model.onnx")
    weights = {w.data_type: 0 for w in graph.graph.initializer}
    for weight in graph.graph.initializer:
        weights[weight.data_type] += int(np.prod(weight.dims))
    assert weights[onnx.TensorProto.INT8] > 5 * weights[onnx.TensorProto.FLOAT]
    report = json.loads((result.path / "report.json").read_text())
    gain = report["conversion"]
    assert gain["bytes_after"] < 0.5 * gain["bytes_before"]
    assert {row["dims"]["batch"] for row in gain["speed"]} > {1}
    assert "What it costs and gives" in (result.path / "report.html").read_text()


def test_x15_what_int8_loses_is_refused_with_the_numbers(tmp_path: Path) -> None:
    fields = prepare(tmp_path, SQUARE)
    request = ExportRequest(
        **fields,  # type: ignore[arg-type]
        precision="int8-dynamic",
        tolerance={"atol": 1e-4, "rtol": 1e-4, "min_cosine": 0.99999},  # type: ignore[arg-type]
    )
    with pytest.raises(ParityError, match=r"not published: .*\d"):
        export(request)
    assert not versions(tmp_path / "out")


def test_x8_float16_and_what_cannot_be_meant(tmp_path: Path) -> None:
    fields = prepare(tmp_path, SQUARE)
    result = export(ExportRequest(**fields, precision="fp16"))  # type: ignore[arg-type]
    manifest = open_artifact(result.path).manifest
    assert manifest.precision.found == "float16"
    assert "random inputs, for want of --calibration" in " ".join(manifest.notes)
    assert any("kept in float32" in note and "float16 ends at" in note for note in manifest.notes)
    with pytest.raises(MissingEnvironmentError, match="cannot be proven here"):
        export(ExportRequest(**fields, precision="bf16"))  # type: ignore[arg-type]
    assert versions(tmp_path / "out") == [1]
    for wrong in (
        {"calibration": tmp_path / "data.npz"},
        {"options": {"calibrate": "minmax"}},
        {"precision": "int8", "target": "torch-export"},
    ):
        with pytest.raises(UsageError):
            export(ExportRequest(**fields, **wrong))  # type: ignore[arg-type]
