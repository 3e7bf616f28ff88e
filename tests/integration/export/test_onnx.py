"""ONNX exports of models that exports trip over: right, or refused and nothing published."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from model_zoo import Frames

from modelops.api.export import ExportResult
from modelops.api.verify import verify
from modelops.artifact import open_artifact
from modelops.errors import ExportError, ParityError, UsageError, VerificationError

pytestmark = pytest.mark.slow


def session(result: ExportResult) -> ort.InferenceSession:
    return ort.InferenceSession(result.path / "model.onnx", providers=["CPUExecutionProvider"])


def published(folder: Path) -> list[Path]:
    return sorted(folder.glob("artifacts/*/*"))


def test_x6_train_mode_is_left_and_said(export_zoo, tmp_path: Path) -> None:
    result = export_zoo("Frames", "mels=float32[batch,frames,6]", dims=("frames=2..40",))
    assert any("train() mode" in note for note in result.notes)
    assert any("range of batch not given: 1..64" in note for note in result.notes)
    model = Frames()
    model.load_state_dict(torch.load("Frames.pt", weights_only=True))
    x = torch.randn(9, 31, 6)
    with torch.inference_mode():
        expected = model.eval()(x).numpy()
    got = session(result).run(["output"], {"mels": x.numpy()})[0]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert verify(Path("artifacts/Frames")).version == 1
    assert (result.path / "report.html").stat().st_size > 1000
    assert not (result.path / "model.onnx.data").exists()


@pytest.mark.parametrize("name", ["BakedMean", "BakedReshape"], ids=["x1", "x3"])
def test_x1_x3_a_baked_size_is_never_published(export_zoo, tmp_path: Path, name: str) -> None:
    with pytest.raises(VerificationError, match=r"dim 'batch' .* static") as caught:
        export_zoo(name, "x=float32[batch,4]")
    assert caught.value.exit_code == 4
    assert published(tmp_path) == []


def test_a_baked_size_that_was_asked_static_is_fine(export_zoo) -> None:
    result = export_zoo("BakedMean", "x=float32[batch,4]", dims=("batch=5",))
    assert session(result).get_inputs()[0].shape == [5, 4]


@pytest.mark.parametrize("name", ["Masked", "MaskedFlat"])
def test_x4_fully_masked_rows_are_right(export_zoo, name: str) -> None:
    result = export_zoo(
        name, "x=float32[batch,seq,8]", "mask=bool[batch,seq,seq]", dims=("seq=2..24",)
    )
    opset = onnx.load(result.path / "model.onnx").opset_import[0].version
    assert opset == 23
    x = np.random.default_rng(0).standard_normal((2, 5, 8)).astype(np.float32)
    mask = np.ones((2, 5, 5), bool)
    mask[1, 3] = False
    found = session(result).run(None, {"x": x, "mask": mask})[0]
    assert np.isfinite(found).all()


def test_x4_a_lower_opset_is_right_or_refused(export_zoo, tmp_path: Path) -> None:
    try:
        result = export_zoo(
            "Masked", "x=float32[batch,seq,8]", "mask=bool[batch,seq,seq]", opset=20
        )
    except ParityError:
        assert published(tmp_path) == []
        return
    x = np.ones((1, 3, 8), np.float32)
    found = session(result).run(None, {"x": x, "mask": np.zeros((1, 3, 3), bool)})[0]
    assert np.isfinite(found).all()


def test_x10_names_that_are_not_forwards(export_zoo) -> None:
    result = export_zoo(
        "Named",
        "query=float32[batch,4]",
        "document=float32[batch,4]",
        output_names=("score", "linear"),
    )
    names = [v.name for v in session(result).get_outputs()]
    assert names == ["score", "linear"]
    assert [v.name for v in session(result).get_inputs()] == ["query", "document"]


def test_x10_dict_inputs_and_a_result_named_like_an_input(export_zoo) -> None:
    result = export_zoo("Batch", "left=float32[batch,4]", "right=float32[batch,4]")
    assert [v.name for v in session(result).get_outputs()] == ["sum", "left_out"]


def test_names_by_keyword_in_another_order(export_zoo) -> None:
    result = export_zoo("Named", "right=float32[batch,4]", "left=float32[batch,4]")
    x, zeros = np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)
    one = session(result).run(["score"], {"left": zeros, "right": x})[0]
    other = session(result).run(["score"], {"left": zeros, "right": zeros})[0]
    np.testing.assert_allclose(one, other - 1, atol=1e-6)


def test_an_output_named_like_a_value_inside_still_loads(export_zoo) -> None:
    first = export_zoo("Frames", "x=float32[batch,frames,6]")
    graph = onnx.load(first.path / "model.onnx").graph
    inner = graph.node[0].output[0]
    result = export_zoo("Frames", "x=float32[batch,frames,6]", output_names=(inner,))
    assert session(result).get_outputs()[0].name == inner


def test_an_input_named_like_a_value_inside_still_loads(export_zoo) -> None:
    first = export_zoo("Frames", "x=float32[batch,frames,6]")
    inner = onnx.load(first.path / "model.onnx").graph.node[0].output[0]
    result = export_zoo("Frames", f"{inner}=float32[batch,frames,6]")
    assert session(result).get_inputs()[0].name == inner


def test_inputs_and_weights_returned_as_they_are(export_zoo) -> None:
    result = export_zoo("PassThrough", "x=float32[batch,4]", output_names=("a", "b", "c"))
    x = np.ones((3, 4), np.float32)
    a, _, c = session(result).run(["a", "b", "c"], {"x": x})
    np.testing.assert_array_equal(a, x)
    assert c.shape == (4, 4)


def test_x12_a_decision_on_values_names_the_line(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"model_zoo\.py:\d+: if x\.sum\(\) > 0") as caught:
        export_zoo("Decides", "x=float32[batch,4]")
    assert "torch.where" in (caught.value.hint or "")
    assert published(tmp_path) == []


def test_x12_an_operator_that_onnx_lacks_names_the_line(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"linalg_eig.*model_zoo\.py:\d+: .*eigvals") as caught:
        export_zoo("Eigen", "x=float32[batch,4,4]")
    assert "--to torch-export" in (caught.value.hint or "")
    assert published(tmp_path) == []


def test_integer_inputs_stay_inside_the_table_that_they_index(export_zoo) -> None:
    result = export_zoo("Tokens", "ids=int64[batch,seq]", dims=("seq=2..30",))
    manifest = open_artifact(result.path).manifest
    assert manifest.signature.inputs[0].bounds == (0, 10)


def test_a_range_that_the_model_does_not_take_is_not_published(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(VerificationError, match="seq") as caught:
        export_zoo("Short", "x=float32[batch,seq,4]")
    assert "--dim" in (caught.value.hint or "")
    assert published(tmp_path) == []
    result = export_zoo("Short", "x=float32[batch,seq,4]", dims=("seq=2..16",))
    assert result.parity.passed


def test_float64_stays_float64(export_zoo) -> None:
    result = export_zoo("Double", "x=float64[batch,4]")
    precision = open_artifact(result.path).manifest.precision
    assert precision.found == "float64"


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (("right=float32[batch,4]",), "also needs left"),
        (("a=float32[batch,4]", "left=float32[batch,4]"), "argument 1 of forward"),
        (("a=float32[batch,4]",), "1 inputs were given"),
    ],
)
def test_inputs_that_do_not_fit_forward(export_zoo, inputs: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        export_zoo("Named", *inputs)


def test_a_dim_that_no_input_has(export_zoo) -> None:
    with pytest.raises(UsageError, match="--dim frames"):
        export_zoo("Tokens", "ids=int64[batch,seq]", dims=("frames=2..9",))


def test_the_wrong_number_of_output_names(export_zoo) -> None:
    with pytest.raises(UsageError, match="forward returns 2 tensors: score, raw"):
        export_zoo(
            "Named",
            "left=float32[batch,4]",
            "right=float32[batch,4]",
            output_names=("one", "two", "three"),
        )


def test_sizes_that_are_computed_are_named_by_their_formula(export_zoo) -> None:
    result = export_zoo(
        "Image",
        "image=float32[batch,3,height,width]",
        dims=("height=8..40", "width=8..40"),
        output_names=("label", "features"),
    )
    label, features = open_artifact(result.path).manifest.signature.outputs
    assert (label.dtype, label.shape) == ("int64", ("batch",))
    assert "height" in str(features.shape[2])
    image = np.zeros((3, 3, 21, 16), np.float32)
    assert session(result).run(["features"], {"image": image})[0].shape == (3, 4, 11, 8)


def test_a_model_that_answers_in_two_ways_is_refused(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="in two ways"):
        export_zoo("Noisy", "x=float32[batch,4]")
    assert published(tmp_path) == []


def test_nan_never_passes(export_zoo, tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="eager itself gives NaN"):
        export_zoo("Logs", "x=float32[batch,4]")
    assert published(tmp_path) == []


def test_a_model_that_keeps_a_tensor_can_be_traced(export_zoo) -> None:
    assert export_zoo("Keeps", "x=float32[batch,4]").parity.passed
