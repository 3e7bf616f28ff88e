"""A graph that is wrong by one node: the layer, the node and the user's line are named."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from broken_onnx import breaking, operator, weight_off_by

from modelops.errors import ParityError

pytestmark = pytest.mark.slow
INPUT = "x=float32[batch,frames,6]"


def refused(export_zoo: Any, monkeypatch: pytest.MonkeyPatch, change: Any) -> str:
    monkeypatch.setattr("modelops_exporters.to_onnx.OnnxExporter", breaking(change))
    with pytest.raises(ParityError) as caught:
        export_zoo("Frames", INPUT)
    return caught.value.message


def test_a_weight_that_is_off_names_its_layer_and_line(
    export_zoo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refused(export_zoo, monkeypatch, weight_off_by(0.5, "b.weight"))
    assert "first apart at linear_1 (aten.linear.default), ONNX node" in told
    assert "(Gemm)" in told
    assert "model_zoo.py:" in told
    assert "return self.b(self.drop(self.norm(hidden)))" in told


def test_a_wrong_operator_is_named_where_it_stands_not_where_it_shows(
    export_zoo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = refused(export_zoo, monkeypatch, operator("Relu", "Abs"))
    assert "first apart at relu (aten.relu.default), ONNX node" in told
    assert "(Abs)" in told


def test_nan_is_located(export_zoo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def change(model: onnx.ModelProto) -> None:
        operator("Relu", "Log")(model)

    told = refused(export_zoo, monkeypatch, change)
    assert "first apart at relu" in told
    assert "NaN where eager is finite" in told
