"""The ONNX Runtime engine on real sessions: provider, signature, values, native failures."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import server_zoo
from fake_artifacts import make_artifact, mlp_reference, mlp_signature

from modelops.artifact import open_artifact
from modelops.errors import (
    DeadlineError,
    EngineError,
    IntegrityError,
    MissingEnvironmentError,
    NotReadyError,
    RequestError,
)
from modelops.signature import TensorSpec
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine

X = np.arange(8, dtype="f4").reshape(2, 4)


@pytest.fixture
def engine(tmp_path: Path) -> OnnxRuntimeEngine:
    made = OnnxRuntimeEngine(make_artifact(tmp_path / "mlp"), provider="cpu", threads=1)
    made.start()
    return made


def test_it_computes_says_what_it_runs_on_and_stops(engine: OnnxRuntimeEngine) -> None:
    np.testing.assert_allclose(engine.infer({"x": X}, None)["y"], mlp_reference(X), rtol=1e-5)
    assert engine.health().state == "ready"
    facts = engine.describe()
    assert (facts["provider"], facts["threads"]) == ("cpu", 1)
    engine.stop(None)
    engine.stop(None)
    assert engine.health().state == "stopped"
    with pytest.raises(NotReadyError):
        engine.infer({"x": X}, None)


def test_h3_what_does_not_fit_never_reaches_the_runtime(engine: OnnxRuntimeEngine) -> None:
    for bad in ({}, {"x": X, "z": X}, {"x": X.astype("f8")}, {"x": X[0]}, {"x": np.zeros((65, 4))}):
        with pytest.raises(RequestError):
            engine.infer(bad, None)
    with pytest.raises(DeadlineError):
        engine.infer({"x": X}, time.monotonic() - 1)


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
@pytest.mark.parametrize("listed", [False, True])
def test_an_asked_provider_is_there_or_an_error_never_a_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: str, listed: bool
) -> None:
    if "CUDAExecutionProvider" in ort.get_available_providers():
        pytest.skip("this machine may really have it")
    if listed:  # as the GPU package says on a machine without a GPU
        names = ["TensorrtExecutionProvider", "CUDAExecutionProvider", "CPUExecutionProvider"]
        monkeypatch.setattr(ort, "get_available_providers", lambda: names)
    engine = OnnxRuntimeEngine(make_artifact(tmp_path / "mlp"), provider=provider)
    # The runtime's own warning, where it hands out another session than was asked for.
    warned = pytest.warns(UserWarning, match="provider") if listed else contextlib.nullcontext()
    with warned, pytest.raises(MissingEnvironmentError) as caught:
        engine.start()
    assert provider in caught.value.message
    assert caught.value.hint is not None
    assert engine.health().state == "failed"


def test_a_signature_that_is_not_the_models_is_refused(tmp_path: Path) -> None:
    right = mlp_signature()
    for number, x in enumerate(
        (
            TensorSpec(name="x", dtype="float64", shape=("batch", 4)),
            TensorSpec(name="x", dtype="float32", shape=("batch", 5)),
            TensorSpec(name="z", dtype="float32", shape=("batch", 4)),
            TensorSpec(name="x", dtype="float32", shape=("batch", 4, 1)),
        )
    ):
        wrong = right.model_copy(update={"inputs": (x,)})
        artifact = make_artifact(tmp_path / str(number), signature=wrong)
        with pytest.raises(IntegrityError):
            OnnxRuntimeEngine(artifact, provider="cpu").start()


def test_token_ids_out_of_bounds_are_the_callers_fault(tmp_path: Path) -> None:
    artifact = open_artifact(server_zoo.tiny_embedder(tmp_path / "e"))
    engine = OnnxRuntimeEngine(artifact, provider="cpu")
    engine.start()
    mask = np.ones((1, 3), "i8")
    assert engine.infer({"input_ids": mask * 9, "attention_mask": mask}, None)["embedding"].size
    for bad in (10, -1):
        with pytest.raises(RequestError, match=r"outside 0\.\.9"):
            engine.infer({"input_ids": mask * bad, "attention_mask": mask}, None)


def test_a_native_failure_keeps_its_message_and_its_cause(tmp_path: Path) -> None:
    engine = OnnxRuntimeEngine(open_artifact(server_zoo.breakable(tmp_path / "b")), provider="cpu")
    engine.start()
    one = np.ones((1, 4), "f4")
    with pytest.raises(EngineError, match="onnxruntime failed") as caught:
        engine.infer({"x": one, "shape": np.array([1, 4])}, None)
    assert caught.value.__cause__ is not None
    assert engine.infer({"x": one, "shape": np.array([1, 1])}, None)["y"].shape == (1, 4)


def test_strings_and_bfloat16_together_are_refused_before_loading(tmp_path: Path) -> None:
    path = server_zoo.echo(tmp_path / "m", "m", ["string", "bfloat16"])
    with pytest.raises(MissingEnvironmentError, match="bfloat16"):
        OnnxRuntimeEngine(open_artifact(path))


def test_a_model_that_is_no_onnx_is_an_engine_error(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "x", files={"model.onnx": b"\x00garbage"})
    with pytest.raises(EngineError, match=r"cannot load model\.onnx"):
        OnnxRuntimeEngine(artifact, provider="cpu").start()
