"""Real builds, by TensorRT-RTX: the same API, the same parser, and no GPU needed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from modelops.errors import ExportError, InputError, IntegrityError, UsageError
from modelops.progress import silent
from modelops.signature import DimRange, Signature, parse_tensor
from modelops.tensorrt import listen, open_plan
from modelops_exporters.trt.building import Built, build
from modelops_exporters.trt.options import TensorRTOptions, read_options
from modelops_exporters.trt.profiles import InputShapes, input_shapes

trt: Any = pytest.importorskip("tensorrt_rtx")

pytestmark = pytest.mark.filterwarnings("ignore:Use Deprecated in TensorRT-RTX:DeprecationWarning")
SIGNATURE = Signature(
    inputs=(parse_tensor("x=float32[batch,16]"),),
    outputs=(parse_tensor("y=float32[batch,4]"),),
    dims={"batch": DimRange(min=1, max=64)},
)


def graph(folder: Path, operator: str = "MatMul", dtype: type = np.float32) -> Path:
    weight = np.random.default_rng(0).standard_normal((16, 4)).astype(dtype)
    of = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node(operator, ["x", "w"], ["m"], name="the_node"),
                helper.make_node("Relu", ["m"], ["y"]),
            ],
            "g",
            [helper.make_tensor_value_info("x", of, ["batch", 16])],
            [helper.make_tensor_value_info("y", of, ["batch", 4])],
            [numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=10,
    )
    path = folder / "model.onnx"
    # Weights outside: only a parser that is given the path finds them.
    onnx.save_model(model, path, save_as_external_data=True, location="w.data", size_threshold=0)
    return path


def built(folder: Path, *, said: list[str] | None = None, **options: str) -> Built:
    asked = read_options(options)
    shapes = input_shapes(SIGNATURE, asked.opt)
    return build(trt, graph(folder), shapes, asked, silent if said is None else said.append)


def test_a_dynamic_plan_with_a_cache_and_progress(tmp_path: Path) -> None:
    said: list[str] = []
    cache = tmp_path / "timing.cache"
    found = built(
        tmp_path, said=said, timing_cache=str(cache), workspace="64MiB", optimization_level="2"
    )
    assert len(found.plan) > 1000
    assert found.dtypes == {"float32": found.layers}
    assert cache.stat().st_size > 0
    assert "parsing the graph" in said
    assert any("building engine" in step for step in said)
    assert any(re.search(r" \d+/\d+$", step) for step in said)
    assert built(tmp_path, timing_cache=str(cache)).layers == found.layers


def test_precision_is_the_graphs(tmp_path: Path) -> None:
    shapes = input_shapes(SIGNATURE, {})
    found = build(trt, graph(tmp_path, dtype=np.float16), shapes, TensorRTOptions(), silent)
    assert found.dtypes == {"float16": found.layers}


def test_what_the_parser_refuses_is_named_with_its_node(tmp_path: Path) -> None:
    shapes = input_shapes(SIGNATURE, {})
    with pytest.raises(ExportError, match=r"node the_node \(Frobnicate\): .*Plugin not found"):
        build(trt, graph(tmp_path, "Frobnicate"), shapes, TensorRTOptions(), silent)


def test_shapes_that_do_not_rise_are_refused_with_tensorrts_reason(tmp_path: Path) -> None:
    wrong = {"x": InputShapes(min=(8, 16), opt=(4, 16), max=(1, 16))}
    with pytest.raises(ExportError, match="MIN<=OPT<=MAX"):
        build(trt, graph(tmp_path), wrong, TensorRTOptions(), silent)


def test_a_build_that_fails_is_an_error_with_the_loggers_reason(tmp_path: Path) -> None:
    # A fixed dim that the graph does not have is only found while building.
    wrong = {"x": InputShapes(min=(1, 15), opt=(4, 15), max=(8, 15))}
    with pytest.raises(
        ExportError, match=r"TensorRT .*(builds no plan|does not take the shapes): "
    ):
        build(trt, graph(tmp_path), wrong, TensorRTOptions(), silent)


def test_a_cache_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        built(tmp_path, timing_cache=str(tmp_path))


def test_a_plan_that_is_not_whole(tmp_path: Path) -> None:
    plan = built(tmp_path).plan
    path = tmp_path / "model.plan"
    for content in (plan[: len(plan) // 2], b"x" * 200):
        path.write_bytes(content)
        with pytest.raises(IntegrityError, match=r"model\.plan is no whole plan of TensorRT \d"):
            open_plan(trt, path, listen(trt))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"workspce": "1GiB"}, "no option 'workspce'"),
        ({"optimization_level": "6"}, "optimization_level"),
        ({"workspace": "much"}, "512MiB"),
        ({"opt": "batch"}, "batch=8"),
        ({"via": "magic"}, "via"),
    ],
)
def test_options_that_cannot_be_meant(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        read_options(given)
    if "workspce" in given:
        assert caught.value.hint == "did you mean workspace?"


def test_the_middle_is_geometric_unless_asked() -> None:
    assert input_shapes(SIGNATURE, {})["x"].opt == (8, 16)
    assert input_shapes(SIGNATURE, {"batch": 5})["x"].opt == (5, 16)
    for wrong in ({"batch": 65}, {"rows": 3}):
        with pytest.raises(UsageError, match="--option opt"):
            input_shapes(SIGNATURE, wrong)
