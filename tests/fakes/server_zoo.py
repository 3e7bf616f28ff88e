"""Small real ONNX artifacts, each of which serves one purpose in the tests of serving."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from fake_artifacts import make_artifact
from onnx import TensorProto, helper, numpy_helper

from modelops.dtypes import DTYPES, numpy_dtype
from modelops.signature import DimRange, Padding, Signature, TensorSpec

ECHOES = {"echo": [n for n in DTYPES if n != "string"], "strings": ["string", "int32"]}
"""The models that give back what they get, and what they take (the runtime carries bfloat16 and
strings only one at a time)."""


def random_tensor(name: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Return a tensor of dtype ``name`` made of random bits, NaN and infinities among them."""
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    if name == "string":
        items = np.empty(size, dtype=object)
        items[:] = [f"é{i}\x00".encode() if i % 2 else b"" for i in range(size)]
        return items.reshape(shape)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    dtype = numpy_dtype(name)
    return np.frombuffer(rng.bytes(size * dtype.itemsize), dtype).reshape(shape).copy()


def publish_all(root: Path) -> dict[str, Path]:
    """Publish one artifact of each kind under ``root``; return their versions' folders."""
    return {
        "mlp": make_artifact(root / "mlp").path,
        "echo": echo(root / "echo", "echo", ECHOES["echo"]),
        "strings": echo(root / "strings", "strings", ECHOES["strings"]),
        "floats": float_echo(root / "floats", "floats"),
        "ratio": ratio(root / "ratio"),
        "breakable": breakable(root / "breakable"),
        "slow": slow(root / "slow"),
        "embedder": tiny_embedder(root / "embedder"),
    }


def onnx_model(
    nodes: list[onnx.NodeProto],
    inputs: tuple[TensorSpec, ...],
    outputs: tuple[TensorSpec, ...],
    initializers: list[onnx.TensorProto] | None = None,
) -> onnx.ModelProto:
    """Build a model whose inputs and outputs are those of the specs."""
    named = {"FLOAT": "float32", "DOUBLE": "float64"}
    by_name = {named.get(n, n.lower()): value for n, value in TensorProto.DataType.items()}

    def info(spec: TensorSpec) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(spec.name, by_name[spec.dtype], list(spec.shape))

    graph = helper.make_graph(
        nodes, "g", [info(t) for t in inputs], [info(t) for t in outputs], initializers or []
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def echo(root: Path, name: str, dtypes: list[str]) -> Path:
    """Publish a model that gives back one tensor of each of ``dtypes``."""
    inputs = tuple(TensorSpec(name=f"in_{d}", dtype=d, shape=("batch", "n")) for d in dtypes)
    outputs = tuple(TensorSpec(name=f"out_{d}", dtype=d, shape=("batch", "n")) for d in dtypes)
    nodes = [helper.make_node("Identity", [f"in_{d}"], [f"out_{d}"]) for d in dtypes]
    signature = Signature(
        inputs=inputs,
        outputs=outputs,
        dims={"batch": DimRange(min=0, max=64), "n": DimRange(min=0, max=2**22)},
    )
    model = onnx_model(nodes, inputs, outputs)
    return make_artifact(root, onnx_model=model, signature=signature, name=name).path


def float_echo(root: Path, name: str) -> Path:
    """Publish a model that gives back float32[batch,n] of up to 4 Mi values."""
    x = TensorSpec(name="x", dtype="float32", shape=("batch", "n"))
    y = TensorSpec(name="y", dtype="float32", shape=("batch", "n"))
    signature = Signature(
        inputs=(x,),
        outputs=(y,),
        dims={"batch": DimRange(min=1, max=64), "n": DimRange(min=1, max=2**22)},
    )
    model = onnx_model([helper.make_node("Identity", ["x"], ["y"])], (x,), (y,))
    return make_artifact(root, onnx_model=model, signature=signature, name=name).path


def ratio(root: Path) -> Path:
    """Publish ``y = a / b``, which makes infinities and NaN of ordinary numbers."""
    a, b = (TensorSpec(name=n, dtype="float32", shape=("batch", 2)) for n in "ab")
    y = TensorSpec(name="y", dtype="float32", shape=("batch", 2))
    signature = Signature(inputs=(a, b), outputs=(y,), dims={"batch": DimRange(min=1, max=64)})
    model = onnx_model([helper.make_node("Div", ["a", "b"], ["y"])], (a, b), (y,))
    return make_artifact(root, onnx_model=model, signature=signature, name="ratio").path


def breakable(root: Path) -> Path:
    """Publish a model whose runtime fails where ``shape`` asks for what four values cannot be."""
    x = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
    shape = TensorSpec(name="shape", dtype="int64", shape=(2,))
    y = TensorSpec(name="y", dtype="float32", shape=("rows", "columns"))
    signature = Signature(inputs=(x, shape), outputs=(y,), dims={"batch": DimRange(min=1, max=64)})
    nodes = [
        helper.make_node("Add", ["shape", "offset"], ["target"]),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    # The ones that warm-up sends become [-1, 4], which always fits.
    offset = numpy_helper.from_array(np.array([-2, 3]), "offset")
    model = onnx_model(nodes, (x, shape), (y,), [offset])
    return make_artifact(root, onnx_model=model, signature=signature, name="breakable").path


def slow(root: Path) -> Path:
    """Publish a model that sums ``x`` over ``steps`` loop rounds: as slow as it is asked to be."""
    x = TensorSpec(name="x", dtype="float32", shape=("batch", 4))
    steps = TensorSpec(name="steps", dtype="int64", shape=(1,))
    y = TensorSpec(name="y", dtype="float32", shape=("batch", 4))
    signature = Signature(inputs=(x, steps), outputs=(y,), dims={"batch": DimRange(min=1, max=64)})
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Sin", ["total"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("round", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("Squeeze", ["steps"], ["rounds"]),
        helper.make_node("Loop", ["rounds", "true", "x"], ["y"], body=body),
    ]
    model = onnx_model(nodes, (x, steps), (y,), [true])
    return make_artifact(root, onnx_model=model, signature=signature, name="slow").path


def tiny_embedder(root: Path) -> Path:
    """Publish an embedder over a tokenizer of a few words: mean of learned vectors, masked."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "the", "cat", "sat", "on", "a", "mat"]
    vocabulary = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    # As trainers save it: this must never cut a request silently.
    tokenizer.enable_truncation(8)
    table = np.random.default_rng(3).standard_normal((len(words), 4)).astype(np.float32)
    ids, mask = (
        TensorSpec(name=n, dtype="int64", shape=("batch", "sequence"), bounds=bounds)
        for n, bounds in (("input_ids", (0, len(words) - 1)), ("attention_mask", None))
    )
    y = TensorSpec(name="embedding", dtype="float32", shape=("batch", 4))
    signature = Signature(
        inputs=(ids, mask),
        outputs=(y,),
        dims={"batch": DimRange(min=1, max=4), "sequence": DimRange(min=2, max=16)},
        padding=Padding(
            dim="sequence", mask="attention_mask", values={"input_ids": 0, "attention_mask": 0}
        ),
    )
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["vectors"]),
        helper.make_node("Cast", ["attention_mask"], ["weights"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["weights", "last"], ["column"]),
        helper.make_node("Mul", ["vectors", "column"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "middle"], ["total"], keepdims=0),
        helper.make_node("ReduceSum", ["column", "middle"], ["count"], keepdims=0),
        helper.make_node("Div", ["total", "count"], ["embedding"]),
    ]
    constants = [
        numpy_helper.from_array(table, "table"),
        numpy_helper.from_array(np.array([2]), "last"),
        numpy_helper.from_array(np.array([1]), "middle"),
    ]
    return make_artifact(
        root,
        onnx_model=onnx_model(nodes, (ids, mask), (y,), constants),
        files={"tokenizer.json": tokenizer.to_str().encode()},
        signature=signature,
        name="embedder",
        task="embedding",
        text={"max_tokens": 16, "pooling": "mean", "normalized": False},
    ).path
