"""Small real artifacts, published through the store as an export does it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from modelops.artifact import Artifact, Manifest, Store, hash_files
from modelops.artifact.manifest import (
    OutputParity,
    Parity,
    ParityPoint,
    Precision,
    Role,
    Source,
    Tolerance,
)
from modelops.signature import DimRange, Signature, TensorSpec

OPSET = 20


def mlp_weights(seed: int = 7, hidden: int = 8) -> dict[str, np.ndarray]:
    """Return the weights of the MLP: ``y = relu(x·w1 + b1)·w2 + b2``."""
    rng = np.random.default_rng(seed)
    shapes = {"w1": (4, hidden), "b1": (hidden,), "w2": (hidden, 2), "b2": (2,)}
    return {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


def mlp_reference(x: np.ndarray, seed: int = 7) -> np.ndarray:
    """Compute with numpy what the MLP made with ``seed`` computes."""
    w = mlp_weights(seed)
    return np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"] + w["b2"]


def mlp_onnx(seed: int = 7) -> onnx.ModelProto:
    """Build the MLP, ``x=float32[batch,4] → y=float32[batch,2]``."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(w, n) for n, w in mlp_weights(seed).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    onnx.checker.check_model(model)
    return model


def passing_parity(outputs: Iterable[str] = ("y",), *, passed: bool = True) -> Parity:
    """Return a parity block of four points."""
    each = tuple(
        OutputParity(output=o, max_abs=1e-7, max_rel=1e-6, cosine=1.0, passed=passed)
        for o in outputs
    )
    return Parity(
        tolerance=Tolerance(atol=1e-5, rtol=1e-4, min_cosine=0.9999),
        seed=0,
        memory_budget=2**30,
        points=tuple(
            ParityPoint(
                label=f"batch={n}", dims={"batch": n}, inputs="random", padded=False, outputs=each
            )
            for n in (1, 3, 16, 64)
        ),
    )


def make_manifest(
    files: Mapping[str, Any],
    *,
    name: str = "mlp",
    format: str = "onnx",
    entry: str = "model.onnx",
    signature: Signature | None = None,
    **changes: Any,
) -> Manifest:
    """Return a manifest for ``files`` (as ``hash_files`` gives them); ``changes`` by field."""
    fields: dict[str, Any] = {
        "name": name,
        "digest": "",
        "format": format,
        "task": "tensor",
        "entry": entry,
        "signature": signature or mlp_signature(),
        "source": Source(format="safetensors", name=name, sha256="0" * 64),
        "toolchain": {"modelops": "0.1.0"},
        "precision": Precision(asked="float32", found="float32"),
        "opset": OPSET if format == "onnx" else None,
        "parity": passing_parity(),
        "files": dict(files),
    }
    return Manifest(**(fields | changes))


def mlp_signature() -> Signature:
    """Return the MLP's signature; batch is 1..64."""
    return Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", 4)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 2)),),
        dims={"batch": DimRange(min=1, max=64)},
    )


def make_artifact(
    root: Path,
    *,
    onnx_model: onnx.ModelProto | None = None,
    files: Mapping[str, bytes] | None = None,
    evidence: Iterable[str] = ("samples.safetensors", "report.html", "report.json"),
    seed: int = 7,
    **manifest: Any,
) -> Artifact:
    """Publish an artifact under ``root``: the MLP, or ``onnx_model``, as ``model.onnx``.

    ``files`` are further files by path (one called ``model.onnx`` replaces the model);
    ``manifest`` are fields of ``make_manifest``, such as ``task``, ``text`` or ``signature``.
    """
    store = Store(root)
    asked = set(evidence)

    def role(path: str) -> Role:
        return "evidence" if path in asked else "model"

    with store.staging() as staged:
        contents = dict(files or {})
        if manifest.get("format", "onnx") == "onnx" and "model.onnx" not in contents:
            contents["model.onnx"] = (onnx_model or mlp_onnx(seed)).SerializeToString()
        for path, data in contents.items():
            target = staged / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return store.publish(staged, make_manifest(hash_files(staged, role), **manifest))
