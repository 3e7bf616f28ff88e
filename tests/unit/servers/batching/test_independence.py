"""Rows that know of each other are found out, on real sessions; honest models pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import row_models
import server_zoo
from onnx import helper

from modelops.artifact import open_artifact
from modelops.dtypes import DTYPES
from modelops.protocols import Tensors
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.batching import rows_are_independent
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine
from modelops_servers.engines.warmup import golden_inputs

NODE = helper.make_node


def served(path: Path) -> tuple[OnnxRuntimeEngine, Signature]:
    artifact = open_artifact(path)
    engine = OnnxRuntimeEngine(artifact, provider="cpu", threads=1)
    engine.start()
    return engine, artifact.manifest.signature


MIXING: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "less the batch's mean": (
        [NODE("ReduceMean", ["x", "zero"], ["m"], keepdims=1), NODE("Sub", ["x", "m"], ["y"])],
        {"zero": np.array([0])},
    ),
    "a thousandth of the batch's mean": (
        [
            NODE("ReduceMean", ["x", "zero"], ["m"], keepdims=1),
            NODE("Mul", ["m", "little"], ["n"]),
            NODE("Sub", ["x", "n"], ["y"]),
        ],
        {"zero": np.array([0]), "little": np.float32(1e-3)},
    ),
    "summed over the rows before": (
        [NODE("CumSum", ["x", "zero"], ["y"])],
        {"zero": np.array(0)},
    ),
    "shown in turn": (
        [NODE("Slice", ["x", "start", "end", "zero", "back"], ["y"])],
        {
            "zero": np.array([0]),
            "start": np.array([-1]),
            "end": np.array([-(2**31)]),
            "back": np.array([-1]),
        },
    ),
    "over the batch's softmax": ([NODE("Softmax", ["x"], ["y"], axis=0)], {}),
    "quantised by the batch's largest value": (
        [
            NODE("DynamicQuantizeLinear", ["x"], ["q", "scale", "offset"]),
            NODE("DequantizeLinear", ["q", "scale", "offset"], ["y"]),
        ],
        {},
    ),
}


@pytest.mark.parametrize("name", MIXING)
def test_rows_that_know_of_each_other_are_found_out(tmp_path: Path, name: str) -> None:
    nodes, constants = MIXING[name]
    engine, signature = row_models.engine(tmp_path / "m", nodes, constants=constants)
    reason = rows_are_independent(engine, signature)
    assert reason is not None
    assert "'y' of row" in reason


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_whole_numbers_must_be_equal(tmp_path: Path, dtype: str) -> None:
    y = TensorSpec(name="y", dtype=dtype, shape=("batch", 4))
    nodes = [NODE("ReduceMax", ["x", "zero"], ["m"], keepdims=1), NODE("Equal", ["x", "m"], ["b"])]
    to = {"int64": 7, "bool": 9}[dtype]
    nodes += [NODE("Cast", ["b"], ["y"], to=to)]
    engine, signature = row_models.engine(
        tmp_path / "m", nodes, outputs=(y,), constants={"zero": np.array([0])}
    )
    assert "values of 'y' differ" in str(rows_are_independent(engine, signature))


def test_honest_models_of_every_dtype_may_share_calls(tmp_path: Path) -> None:
    names = [d for d in DTYPES if d != "string"]
    for engine, signature in (
        served(server_zoo.echo(tmp_path / "e", "e", names)),
        served(server_zoo.echo(tmp_path / "s", "s", ["string", "int32"])),
        served(server_zoo.tiny_embedder(tmp_path / "t")),
        row_models.tagger(tmp_path / "g"),
        row_models.engine(tmp_path / "r", [NODE("Relu", ["x"], ["y"])]),
    ):
        assert rows_are_independent(engine, signature) is None


def test_infinities_and_nan_of_their_own_are_no_difference(tmp_path: Path) -> None:
    engine, signature = row_models.engine(tmp_path / "m", [NODE("Log", ["x"], ["y"])])
    assert rows_are_independent(engine, signature) is None


@pytest.mark.parametrize("wrong", ["the mask is not looked at", "the padding's mask is 1"])
def test_padding_that_shows_is_found_out(tmp_path: Path, wrong: str) -> None:
    options: dict[str, Any] = (
        {"masked": False} if wrong == "the mask is not looked at" else {"pad_mask": 1}
    )
    engine, signature = row_models.tagger(tmp_path / "m", **options)
    assert "'tags' of row" in str(rows_are_independent(engine, signature))


def test_a_model_that_answers_by_chance_is_kept_apart(tmp_path: Path) -> None:
    nodes = [NODE("RandomNormalLike", ["x"], ["r"]), NODE("Add", ["x", "r"], ["y"])]
    engine, signature = row_models.engine(tmp_path / "m", nodes)
    assert rows_are_independent(engine, signature) is not None


def test_what_always_answers_the_same_shows_nothing(tmp_path: Path) -> None:
    nodes = [NODE("Mul", ["x", "zero"], ["y"])]
    engine, signature = row_models.engine(tmp_path / "m", nodes, constants={"zero": np.float32(0)})
    assert "the same answer" in str(rows_are_independent(engine, signature))


def test_probes_that_the_model_refuses_leave_it_to_the_samples(tmp_path: Path) -> None:
    """Only ids 40..49 are in the table; nothing but a sample knows that."""
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch",))
    nodes = [
        NODE("Sub", ["ids", "forty"], ["index"]),
        NODE("Gather", ["table", "index"], ["found"]),
        NODE("ReduceMean", ["found", "zero"], ["m"], keepdims=1),
        NODE("Mul", ["m", "share"], ["n"]),
        NODE("Sub", ["found", "n"], ["y"]),
    ]
    table = np.random.default_rng(0).standard_normal((10, 4)).astype("f4")
    sample = {"ids": np.arange(40, 50)}
    for share, expected in ((0, None), (1, "'y' of row 0 differs")):
        signature = Signature(inputs=(ids,), outputs=(row_models.Y,), dims=row_models.BATCH)
        engine = _unwarmed(tmp_path / str(share), nodes, signature, table, share)
        assert "no probe could be run" in str(rows_are_independent(engine, signature))
        reason = rows_are_independent(engine, signature, [sample])
        assert reason is None if expected is None else expected in str(reason)


def _unwarmed(folder: Path, nodes: list[Any], signature: Signature, table: Any, share: int) -> Any:
    """A real session behind the engine's protocol, whose warm-up would already refuse ones."""
    import onnxruntime as ort
    from onnx import numpy_helper

    from modelops.errors import EngineError

    constants = {
        "table": table,
        "forty": np.array(40),
        "zero": np.array([0]),
        "share": np.float32(share),
    }
    model = server_zoo.onnx_model(
        nodes,
        signature.inputs,
        signature.outputs,
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)

    class Bare:
        def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
            try:
                return {"y": session.run(None, dict(tensors))[0]}
            except Exception as error:
                raise EngineError(str(error)) from error

        def describe(self) -> dict[str, Any]:
            return {}

    return Bare()


@pytest.mark.parametrize(("row", "found"), [(0, True), (1, False), (2, True)])
def test_only_the_loud_row_may_overflow_in_company(row: int, found: bool) -> None:
    class Overflowing:
        def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
            y = tensors["x"] * 2
            if len(y) > 1:
                y[row, 0] = np.inf
            return {"y": y}

        def describe(self) -> dict[str, Any]:
            return {}

    signature = Signature(inputs=(row_models.X,), outputs=(row_models.Y,), dims=row_models.BATCH)
    assert (rows_are_independent(Overflowing(), signature) is not None) is found  # type: ignore[arg-type]


def test_two_rows_at_most_are_enough_to_tell(tmp_path: Path) -> None:
    engine, signature = row_models.engine(
        tmp_path / "m",
        [NODE("CumSum", ["x", "zero"], ["y"])],
        dims={"batch": DimRange(min=1, max=2)},
        constants={"zero": np.array(0)},
    )
    assert "row 1" in str(rows_are_independent(engine, signature))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dims": {"batch": DimRange(min=1, max=1)}}, "no two requests"),
        ({"outputs": (TensorSpec(name="y", dtype="float32", shape=(4,)),)}, "no symbolic dim"),
        (
            {"outputs": (TensorSpec(name="y", dtype="float32", shape=("batch", "batch")),)},
            "elsewhere than first",
        ),
        (
            {"outputs": (TensorSpec(name="y", dtype="float32", shape=("batch", "u0")),)},
            "which no input determines",
        ),
    ],
)
def test_where_the_signature_says_no_the_engine_is_not_asked(
    change: dict[str, Any], reason: str
) -> None:
    signature = Signature(inputs=(row_models.X,), outputs=(row_models.Y,), dims=row_models.BATCH)
    none: Any = None
    assert reason in str(rows_are_independent(none, signature.model_copy(update=change)))


def test_dims_and_bounds_are_respected(tmp_path: Path) -> None:
    """The real engine refuses whatever is outside them."""
    ids = TensorSpec(name="ids", dtype="int64", shape=("batch", "n"), bounds=(3, 4))
    y = TensorSpec(name="y", dtype="int64", shape=("batch", "n"))
    for least, most, low, high in ((2, 5, 1, 2), (1, 2, 40, 50), (4, 64, 9, 9)):
        engine, signature = row_models.engine(
            tmp_path / f"{least}-{most}",
            [NODE("Identity", ["ids"], ["y"])],
            (ids,),
            (y,),
            dims={"batch": DimRange(min=least, max=most), "n": DimRange(min=low, max=high)},
        )
        assert rows_are_independent(engine, signature) is None


@pytest.mark.slow
def test_minilm_may_share_calls(minilm_artifact: Path) -> None:
    artifact = open_artifact(minilm_artifact)
    engine = OnnxRuntimeEngine(artifact, provider="cpu")
    engine.start()
    signature = artifact.manifest.signature
    assert rows_are_independent(engine, signature, golden_inputs(artifact)) is None
