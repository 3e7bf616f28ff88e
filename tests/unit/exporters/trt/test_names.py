"""Every name of TensorRT's and CUDA's bindings that the code uses is in 10.x and in 11.x.

The record is what the bindings themselves said (``make tensorrt-names``).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
RECORD = {
    version: {name: set(names.split()) for name, names in classes.items()}
    for version, classes in json.loads(
        (ROOT / "tests/golden/tensorrt-names.json").read_text()
    ).items()
}
VERSIONS = [v for v in RECORD if v[0].isdigit()]
CUDA = next(v for v in RECORD if v.startswith("cuda"))
SOURCES = [
    *(ROOT / "src/modelops/tensorrt").glob("*.py"),
    *(ROOT / "exporters/modelops_exporters/trt").glob("*.py"),
    ROOT / "exporters/modelops_exporters/to_tensorrt.py",
]
# What the code calls an object, and what it is an object of.
CLASSES = {
    "builder": "Builder",
    "network": "INetworkDefinition",
    "config": "IBuilderConfig",
    "parser": "OnnxParser",
    "profile": "IOptimizationProfile",
    "engine": "ICudaEngine",
    "context": "IExecutionContext",
    "_context": "IExecutionContext",
    "runtime": "Runtime",
    "inspector": "EngineInspector",
    "cache": "ITimingCache",
    "tensor": "ITensor",
    "layer": "ILayer",
}
OF_MODULE = {"__version__", "__name__"}
# Where `runtime` is CUDA's; and `get` is a mapping's, of what was read back.
OF_CUDA = {"buffers.py", "machine.py"}


def uses(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yield each class and attribute that is used, and the line."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Attribute):
            continue
        owner = node.value
        name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
        if name == "trt" and node.attr not in OF_MODULE:
            yield "", node.attr, node.lineno
        elif getattr(getattr(owner, "value", None), "id", "") == "trt" and name not in OF_MODULE:
            yield name, node.attr, node.lineno
        elif name in CLASSES and path.name not in OF_CUDA and node.attr != "get":
            yield CLASSES[name], node.attr, node.lineno


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_used_is_there(version: str) -> None:
    classes, missing, seen = RECORD[version], [], set()
    for path in SOURCES:
        for owner, name, line in uses(path):
            seen.add((owner, name))
            if name == "__init__":
                continue
            there = name in classes if not owner else name in classes[owner]
            if not there:
                missing.append(f"{path.name}:{line}: {owner}.{name}")
    assert not missing
    # The walk has seen what matters most, so that it cannot pass by seeing nothing.
    assert {
        ("NetworkDefinitionCreationFlag", "STRONGLY_TYPED"),
        ("OnnxParser", "parse_from_file"),
        ("IBuilderConfig", "add_optimization_profile"),
        ("IExecutionContext", "execute_async_v3"),
        ("ICudaEngine", "get_tensor_profile_shape"),
    } <= seen


@pytest.mark.parametrize("name", ["FP16", "BF16", "INT8", "OBEY_PRECISION_CONSTRAINTS"])
def test_the_record_knows_what_has_gone(name: str) -> None:
    assert name in RECORD["10.3.0"]["BuilderFlag"]
    assert name not in RECORD["11.0.0.114"]["BuilderFlag"]


def test_cuda_has_what_is_called() -> None:
    called = {
        node.attr
        for file in ("buffers.py", "machine.py")
        for node in ast.walk(ast.parse((ROOT / "src/modelops/tensorrt" / file).read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("cuda")
    }
    functions = {n for n in called if not n.startswith(("cudaMemcpyHost", "cudaMemcpyDevice"))}
    assert "cudaMemcpyAsync" in called
    assert functions - {"cudaSuccess"} <= RECORD[CUDA]["runtime"]
