"""Conversions of small graphs: what a type cannot hold, tied weights, what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper, parser

from modelops.artifact.manifest import Tolerance
from modelops.errors import MissingEnvironmentError, UsageError
from modelops.parity.inputs import Arrays
from modelops.progress import silent
from modelops.signature import TensorSpec
from modelops_exporters.quantize import Aim, convert_precision

RNG = np.random.default_rng(3)
HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
# The square of 300 x leaves float16, and so does the mask; a row of softmax must not become NaN.
OVERFLOWING = """g (float[n, 64] x, bool[n, 64] mask) => (float[n, 64] y) {
    a = MatMul(x, w)
    s = Mul(a, big)
    q = Mul(s, s)
    m = ReduceMax<keepdims = 1>(q, last)
    r = Div(q, m)
    p = Where(mask, r, low)
    y = Softmax(p)
}"""
TIED = """g (int64[n] ids) => (float[n, 100] y) {
    e = Gather(table, ids)
    h = MatMul(e, w)
    t = Transpose<perm = [1, 0]>(table)
    y = MatMul(h, t)
}"""


def write(path: Path, text: str, weights: dict[str, npt.NDArray[np.generic]]) -> Path:
    model = parser.parse_model(HEAD + text)
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in weights.items())
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path / "model.onnx")
    return path / "model.onnx"


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


def run(model: Path, feed: Arrays) -> npt.NDArray[np.float32]:
    found: npt.NDArray[np.float32] = ort.InferenceSession(
        str(model), providers=["CPUExecutionProvider"]
    ).run(["y"], feed)[0]
    return found


@pytest.fixture
def overflowing(tmp_path: Path) -> tuple[Path, Arrays]:
    weights = {
        "w": normal(64, 64) / 8,
        "big": np.array(300, np.float32),
        "low": np.array(-1e12, np.float32),
        "last": np.array([-1]),
    }
    mask = RNG.random((5, 64)) < 0.7
    mask[0] = False
    return write(tmp_path, OVERFLOWING, weights), {"x": normal(5, 64), "mask": mask}


@pytest.fixture
def tied(tmp_path: Path) -> tuple[Path, Arrays]:
    weights = {"table": normal(100, 64), "w": normal(64, 64) / 8}
    return write(tmp_path, TIED, weights), {"ids": RNG.integers(0, 100, 16)}


def test_x8_what_float16_cannot_hold_stays_in_float32(overflowing: tuple[Path, Arrays]) -> None:
    model, feed = overflowing
    expected = run(model, feed)
    converted = convert_precision(model, "fp16", [feed], silent)
    got = run(model, feed)
    assert converted.precision == "float16"
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=2e-3)
    operators = {
        node.name: node.op_type for node in onnx.load(model, load_external_data=False).graph.node
    }
    kept = {operators[name] for name in converted.details["kept_in_float32"]}
    assert kept == {"Mul", "ReduceMax", "Div", "Where", "Softmax"}
    weights = {i.name: i.data_type for i in onnx.load(model).graph.initializer}
    assert weights["w"] == onnx.TensorProto.FLOAT16
    assert weights["low"] == onnx.TensorProto.FLOAT


def test_the_same_model_gives_the_same_bytes(
    overflowing: tuple[Path, Arrays], tmp_path: Path
) -> None:
    model, feed = overflowing
    original = model.read_bytes()
    found = []
    for _ in range(2):
        model.write_bytes(original)
        convert_precision(model, "fp16", [feed], silent)
        found.append([p.read_bytes() for p in sorted(tmp_path.iterdir())])
    assert found[0] == found[1]


def test_bfloat16_that_this_runtime_lacks_is_said_and_leaves_the_model(
    overflowing: tuple[Path, Arrays],
) -> None:
    model, feed = overflowing
    before = model.read_bytes()
    with pytest.raises(MissingEnvironmentError, match="cannot run this graph"):
        convert_precision(model, "bf16", [feed], silent)
    assert model.read_bytes() == before
    assert [p.name for p in model.parent.iterdir()] == ["model.onnx"]
    # Another runtime, such as TensorRT, takes it.
    convert_precision(model, "bf16", [feed], silent, elsewhere=True)
    weights = {i.name: i.data_type for i in onnx.load(model).graph.initializer}
    assert weights["w"] == onnx.TensorProto.BFLOAT16


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_tied_weight_is_stored_once(tied: tuple[Path, Arrays], precision: str) -> None:
    model, feed = tied
    expected = run(model, feed)
    tolerance = Tolerance(atol=0.2, rtol=0.1, min_cosine=0.99)
    aim = Aim((TensorSpec(name="y", dtype="float32", shape=("n", 100)),), tolerance, (feed,))
    convert_precision(model, precision, [feed], silent, aim=aim)
    sizes = [np.prod(i.dims) for i in onnx.load(model).graph.initializer]
    assert sum(size == 6400 for size in sizes) == 1
    got = run(model, feed)
    assert np.abs(got - expected).max() < 0.05 * np.abs(expected).max()


def test_nodes_that_eight_bits_break_are_left_in_float(tmp_path: Path) -> None:
    # The second layer's input holds one value a thousand times the others: one scale for both
    # leaves nothing of the small ones, and they make the answer.
    text = """g (float[n, 64] x) => (float[n, 64] y) {
        h = MatMul(x, first)
        o = Mul(h, outlier)
        z = MatMul(o, second)
        y = MatMul(z, third)
    }"""
    outlier = np.ones(64, np.float32)
    outlier[0] = 5000
    second = normal(64, 64) / 8
    second[0] = 0
    weights = {
        "first": normal(64, 64) / 8,
        "outlier": outlier,
        "second": second,
        "third": normal(64, 64) / 8,
    }
    model = write(tmp_path, text, weights)
    feed = {"x": normal(32, 64)}
    expected = run(model, feed)
    tolerance = Tolerance(atol=0.6, rtol=0.05, min_cosine=0.99)
    aim = Aim((TensorSpec(name="y", dtype="float32", shape=("n", 64)),), tolerance, (feed,))
    graph = onnx.load(model).graph
    by_weight = {node.input[1]: node.output[0] for node in graph.node if node.op_type == "MatMul"}
    converted = convert_precision(model, "int8", [feed], silent, aim=aim)
    assert len(converted.details["left_in_float"]) == 1
    assert not converted.details["search"][0]["holds"]
    produced = {node.output[0]: node for node in onnx.load(model).graph.node}
    assert by_weight["second"] in produced
    assert produced[by_weight["second"]].op_type == "MatMulNBits"
    got = run(model, feed)
    cosine = (got * expected).sum(-1) / np.linalg.norm(got, axis=-1)
    assert (cosine / np.linalg.norm(expected, axis=-1)).min() > 0.99


@pytest.mark.parametrize(
    ("precision", "options", "message"),
    [
        ("int8", {"calibrate": "best"}, "minmax, entropy, percentile"),
        ("fp16", {"calibrate": "minmax"}, "calibrate means nothing for --precision fp16"),
        ("int4", {"block_size": "48"}, "block_size=48"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    tied: tuple[Path, Arrays], precision: str, options: dict[str, str], message: str
) -> None:
    model, feed = tied
    aim = Aim((), Tolerance(atol=1, rtol=1, min_cosine=0), (feed,))
    with pytest.raises(UsageError, match=message):
        convert_precision(model, precision, [feed], silent, options, aim=aim)
