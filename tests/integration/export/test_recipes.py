"""Recipes: written, edited, run; and every way in which one can be wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import torch
from model_zoo import Batch, Frames, Named

from modelops.api.export import ExportRequest, ExportResult, export, write_recipe
from modelops.artifact import open_artifact
from modelops.errors import InputError, UsageError

pytestmark = pytest.mark.slow

FRAMES = """
import torch
from model_zoo import Frames


def model():
    return Frames()


def inputs(batch, frames):
    return {"x": torch.randn(batch, frames, 6)}


dims = {"batch": (1, 8), "frames": (2, 40)}
outputs = ["scores"]
tolerance = {"atol": 1e-3}
"""

NESTED = """
import torch
from model_zoo import Batch


def model():
    return Batch()


def inputs(batch):
    return {"batch": {"left": torch.zeros(batch, 4), "right": torch.randn(batch, 4)}}
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def export_by(recipe: str, model: torch.nn.Module) -> ExportResult:
        Path("recipe.py").write_text(recipe)
        torch.save(model.state_dict(), "weights.pt")
        return export(
            ExportRequest(source="weights.pt", recipe=Path("recipe.py"), memory_budget=2**24)
        )

    return export_by


def test_a_recipe_names_dims_outputs_and_tolerance(run) -> None:
    result = run(FRAMES, Frames())
    manifest = open_artifact(result.path).manifest
    assert manifest.signature.inputs[0].shape == ("batch", "frames", 6)
    assert (manifest.signature.dims["frames"].min, manifest.signature.dims["frames"].max) == (2, 40)
    assert manifest.signature.outputs[0].name == "scores"
    assert manifest.parity.tolerance.atol == 1e-3
    assert manifest.source.factory == "recipe.py:model"


def test_nested_inputs_become_flat_names_and_constants_are_varied(run) -> None:
    model = Batch()
    result = run(NESTED, model)
    session = ort.InferenceSession(result.path / "model.onnx", providers=["CPUExecutionProvider"])
    assert [v.name for v in session.get_inputs()] == ["left", "right"]
    left, right = np.ones((5, 4), np.float32), np.zeros((5, 4), np.float32)
    with torch.inference_mode():
        expected = model.eval().a(torch.ones(5, 4)).numpy()
    got = session.run(["sum"], {"left": left, "right": right})[0]
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert any("range of batch not given" in note for note in result.notes)


def test_init_writes_a_recipe_that_needs_only_its_class(run, tmp_path: Path) -> None:
    torch.save(Named().state_dict(), "weights.pt")
    text = write_recipe("weights.pt", Path("drafted.py"))
    assert "a.weight  float32[4, 4]" in text
    edited = (
        text.replace("my_package.my_module", "model_zoo")
        .replace("MyModel", "Named")
        .replace(
            '{"x": torch.randn(batch, length, 4)}',
            '{"left": torch.randn(batch, length, 4), "right": torch.randn(batch, length, 4)}',
        )
    )
    assert run(edited, Named()).parity.passed
    with pytest.raises(UsageError, match="there already"):
        write_recipe("weights.pt", Path("drafted.py"))


def test_init_of_a_folder_is_a_whole_recipe(minilm: Path, tmp_path: Path) -> None:
    text = write_recipe(str(minilm), tmp_path / "recipe.py")
    compile(text, "recipe.py", "exec")
    assert "AutoModel.from_config" in text
    assert "30522" in text


@pytest.mark.parametrize(
    ("old", "new", "kind", "message"),
    [
        ("def model()", "def other()", UsageError, r"defines no model\(\)"),
        ("def inputs(", "def others(", UsageError, r"defines no inputs\(\)"),
        ("return Frames()", "return 3", InputError, "returns int"),
        ("return Frames()", "raise OSError('gone')", InputError, r"raises OSError: gone \(recipe"),
        ("import torch", "import torch,", InputError, "SyntaxError"),
        ("torch.randn(batch, frames, 6)", "'text'", InputError, "holds str"),
        ("torch.randn(batch, frames, 6)", "torch.randn(batch, 9, 6)", UsageError, "dim 'frames'"),
        ("(2, 40)", "(40, 2)", UsageError, r"dims\['frames'\]"),
        ('{"atol": 1e-3}', "'tight'", UsageError, "tolerance of the recipe"),
        ('{"batch": (1, 8), "frames": (2, 40)}', "[1]", UsageError, "dims of the recipe"),
        ("(1, 8)", "(0, 8)", UsageError, r"dims\['batch'\]"),
        ('["scores"]', "5", UsageError, "outputs of the recipe"),
        ('"atol": 1e-3', '"atol": float("nan")', UsageError, "tolerance of the recipe"),
        ('"atol": 1e-3', '"atol": -1', UsageError, "tolerance of the recipe"),
        ("batch, frames, 6)", "batch, 2 * frames, 6)", InputError, "must be the dim itself"),
    ],
)
def test_a_wrong_recipe_is_told_what_is_wrong(
    run, old: str, new: str, kind: type[Exception], message: str
) -> None:
    assert old in FRAMES
    with pytest.raises(kind, match=message):
        run(FRAMES.replace(old, new), Frames())
    assert not Path("artifacts").exists()


def test_no_recipe_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(Frames().state_dict(), "weights.pt")
    with pytest.raises(UsageError, match="no recipe at"):
        export(ExportRequest(source="weights.pt", recipe=Path("nowhere.py")))
    with pytest.raises(UsageError, match="give one"):
        export(ExportRequest(source="weights.pt", recipe=Path("a.py"), model="model_zoo:Frames"))
    with pytest.raises(UsageError, match="holds only weights"):
        export(ExportRequest(source="weights.pt"))
