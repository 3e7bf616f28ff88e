"""Parity on the user's own inputs, and the task metric that gates an export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_onnx import breaking, weight_off_by

from modelops.artifact import open_artifact
from modelops.artifact.manifest import Tolerance
from modelops.errors import InputError, ParityError, UsageError

pytestmark = pytest.mark.slow
INPUT = "x=float32[batch,frames,6]"
METRIC = """
import numpy as np

def largest(outputs, data):
    assert len(outputs["output"]) == len(data["label"]) == len(data["x"])
    return float((outputs["output"].argmax(-1) == data["label"]).mean())

def near(outputs, data):
    return -float(np.abs(outputs["output"] - outputs["output"].mean()).sum())

def nan(outputs, data):
    return float("nan")

def raises(outputs, data):
    return outputs["nothing"]
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    (tmp_path / "my_metric.py").write_text(METRIC)
    x = rng.standard_normal((40, 5, 6)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, label=rng.integers(0, 3, 40))
    return tmp_path / "own.npz"


def test_parity_and_the_metric_on_own_data_are_in_the_manifest(export_zoo, data: Path) -> None:
    result = export_zoo("Frames", INPUT, data=data, metric="my_metric:largest", max_drop=0.0)
    (point,) = [p for p in result.parity.points if p.inputs == "data"]
    assert point.label == "your data"
    assert point.passed
    checks = " ".join(result.parity.checks)
    assert "all 40 items of own.npz were compared with eager, in 2 calls" in checks
    assert "my_metric:largest over own.npz: eager 0." in checks
    assert "a drop of 0 where 0 is allowed" in checks
    assert "your data" in result.report.read_text()
    # What is the user's stays with the user.
    samples = (result.path / "samples.safetensors").read_bytes()
    assert np.load(data)["x"][0].tobytes() not in samples
    assert open_artifact(result.path).manifest.parity == result.parity


def test_a_drop_beyond_what_is_allowed_is_exit_4(
    export_zoo, data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("modelops_exporters.to_onnx.OnnxExporter", breaking(weight_off_by(0.05)))
    wide = Tolerance(atol=9, rtol=9, min_cosine=-1)
    with pytest.raises(
        ParityError, match=r"my_metric:near .*eager -\d.*drop of .* 1e-06"
    ) as caught:
        export_zoo(
            "Frames", INPUT, data=data, metric="my_metric:near", max_drop=1e-6, tolerance=wide
        )
    assert caught.value.exit_code == 4
    assert not (tmp_path / "artifacts" / "Frames").exists()


@pytest.mark.parametrize(
    ("fields", "error", "why"),
    [
        ({"metric": "my_metric:nan"}, InputError, "gives nan on eager"),
        ({"metric": "my_metric:raises"}, InputError, r"KeyError: 'nothing' \(my_metric\.py:15"),
        ({"metric": "my_metric:none"}, UsageError, "no callable 'none'"),
        ({"metric": "absent:none"}, UsageError, "no module named 'absent'"),
        ({"max_drop": 0.1}, UsageError, "--max-drop is of a metric"),
    ],
)
def test_a_metric_that_says_nothing(
    export_zoo, data: Path, fields: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        export_zoo("Frames", INPUT, data=data, **fields)


def test_a_metric_without_data_or_data_that_do_not_fit(export_zoo, data: Path) -> None:
    with pytest.raises(UsageError, match="over your own data"):
        export_zoo("Frames", INPUT, metric="my_metric:largest")
    np.savez(data, x=np.zeros((2, 5, 7), np.float32))
    with pytest.raises(InputError, match=r"own\.npz, item 0: input 'x' has shape \[1, 5, 7\]"):
        export_zoo("Frames", INPUT, data=data)
