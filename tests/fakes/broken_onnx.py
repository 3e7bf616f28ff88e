"""The ONNX exporter with one thing changed in what it writes, as a faulty translation would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from modelops_exporters.to_onnx import OnnxExporter


def breaking(change: Callable[[onnx.ModelProto], None]) -> type[OnnxExporter]:
    """Return the exporter that applies ``change`` to the written graph."""

    class Breaking(OnnxExporter):
        def write(self, exported: Any, folder: Path, options: Any, progress: Any) -> Any:
            written = super().write(exported, folder, options, progress)
            model = onnx.load(folder / written.entry)
            change(model)
            onnx.save(model, folder / written.entry)
            return written

    return Breaking


def weight_off_by(amount: float, name: str | None = None) -> Callable[[onnx.ModelProto], None]:
    """Return a change of the first value of a matrix, by name or the first there is."""

    def change(model: onnx.ModelProto) -> None:
        weights = [w for w in model.graph.initializer if len(w.dims) == 2]
        weight = next(w for w in weights if name is None or w.name.endswith(name))
        values = numpy_helper.to_array(weight).copy()
        values.flat[0] += amount
        weight.CopyFrom(numpy_helper.from_array(values, weight.name))

    return change


def operator(old: str, new: str) -> Callable[[onnx.ModelProto], None]:
    """Return a change of every node of the operator ``old`` to ``new``."""

    def change(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            if node.op_type == old:
                node.op_type = new

    return change
