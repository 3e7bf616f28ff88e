"""Small real ONNX models whose rows do, or do not, know of each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from fake_artifacts import make_artifact
from onnx import helper, numpy_helper
from server_zoo import onnx_model

from modelops.artifact import open_artifact
from modelops.signature import DimRange, Padding, Signature, TensorSpec
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine

X = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
Y = TensorSpec(name="y", dtype="float32", shape=("batch", 4))
BATCH = {"batch": DimRange(min=1, max=64)}


def engine(
    folder: Path,
    nodes: list[onnx.NodeProto],
    inputs: tuple[TensorSpec, ...] = (X,),
    outputs: tuple[TensorSpec, ...] = (Y,),
    *,
    dims: dict[str, DimRange] = BATCH,
    padding: Padding | None = None,
    constants: dict[str, np.ndarray] | None = None,
) -> tuple[OnnxRuntimeEngine, Signature]:
    """Publish the model, start the real engine on it."""
    signature = Signature(inputs=inputs, outputs=outputs, dims=dims, padding=padding)
    initializers = [numpy_helper.from_array(v, n) for n, v in (constants or {}).items()]
    path = make_artifact(
        folder,
        onnx_model=onnx_model(nodes, inputs, outputs, initializers),
        signature=signature,
    ).path
    made = OnnxRuntimeEngine(open_artifact(path), provider="cpu", threads=1)
    made.start()
    return made, signature


def look_up(folder: Path) -> tuple[OnnxRuntimeEngine, Signature]:
    """Rows of a table of ten by index: the runtime itself fails where one is out of range."""
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch",))
    table = np.arange(40, dtype="f4").reshape(10, 4)
    return engine(
        folder,
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        (ids,),
        constants={"table": table},
    )


def tagger(
    folder: Path, *, masked: bool = True, pad_mask: int = 0
) -> tuple[OnnxRuntimeEngine, Signature]:
    """Per token its vector less the mean of the real ones; of all of them where not ``masked``."""
    ids, mask = (
        TensorSpec(name=n, dtype="int64", shape=("batch", "sequence"), bounds=(0, high))
        for n, high in (("ids", 9), ("mask", 1))
    )
    tags = TensorSpec(name="tags", dtype="float32", shape=("batch", "sequence", 4))
    table = np.random.default_rng(3).standard_normal((10, 4)).astype("f4")
    weigh = [
        helper.make_node("Cast", ["mask"], ["weights"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "last"], ["column"]),
    ]
    if not masked:
        weigh += [helper.make_node("Mul", ["column", "zero"], ["nothing"])]
        weigh += [helper.make_node("Add", ["nothing", "one"], ["every"])]
    column = "column" if masked else "every"
    nodes = [
        *weigh,
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("Mul", ["vectors", column], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["total"], keepdims=1),
        helper.make_node("ReduceSum", [column, "middle"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], ["mean"]),
        helper.make_node("Sub", ["vectors", "mean"], ["tags"]),
    ]
    return engine(
        folder,
        nodes,
        (ids, mask),
        (tags,),
        dims={**BATCH, "sequence": DimRange(min=1, max=64)},
        padding=Padding(dim="sequence", mask="mask", values={"ids": 0, "mask": pad_mask}),
        constants={
            "table": table,
            "last": np.array([2]),
            "middle": np.array([1]),
            "zero": np.float32(0),
            "one": np.float32(1),
        },
    )
