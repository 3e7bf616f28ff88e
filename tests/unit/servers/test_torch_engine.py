"""The PyTorch engine on real archives: values, what does not fit, provider, compile."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_artifacts import make_artifact

from modelops.artifact import Artifact
from modelops.config.engine_options import TorchOptions
from modelops.errors import (
    DeadlineError,
    EngineError,
    MissingEnvironmentError,
    NotReadyError,
    RequestError,
    UsageError,
)
from modelops_servers.engines.torch_engine import TorchEngine

X = np.arange(8, dtype="f4").reshape(2, 4)


class Half(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (x[:, :2] / 2,)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(Half(), (torch.zeros(2, 4),), dynamic_shapes=({0: batch},))
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    torch.export.save(program, path)
    return path.read_bytes()


@pytest.fixture
def artifact(archive: bytes, tmp_path: Path) -> Artifact:
    return make_artifact(
        tmp_path / "half", format="torch-export", entry="model.pt2", files={"model.pt2": archive}
    )


def test_it_computes_says_what_it_runs_on_and_stops(artifact: Artifact) -> None:
    engine = TorchEngine(artifact, threads=1)
    engine.start()
    x = X.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(engine.infer({"x": x}, None)["y"], X[:, :2] / 2)
    facts = engine.describe()
    assert (facts["provider"], facts["threads"], facts["mode"]) == ("cpu", 1, "eager")
    for bad in ({}, {"x": X.astype("f8")}, {"x": X[0]}, {"x": np.zeros((65, 4), "f4")}):
        with pytest.raises(RequestError):
            engine.infer(bad, None)
    with pytest.raises(DeadlineError):
        engine.infer({"x": X}, time.monotonic() - 1)
    engine.stop(None)
    assert engine.health().state == "stopped"
    with pytest.raises(NotReadyError):
        engine.infer({"x": X}, None)


def test_what_is_no_program_is_told(tmp_path: Path) -> None:
    broken = make_artifact(
        tmp_path / "b", format="torch-export", entry="model.pt2", files={"model.pt2": b"PK no"}
    )
    engine = TorchEngine(broken, threads=1)
    with pytest.raises(EngineError, match=r"cannot load model\.pt2"):
        engine.start()
    assert engine.health().state == "failed"


def test_providers_and_options_that_are_not_there(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no provider 'tensorrt'"):
        TorchEngine(artifact, provider="tensorrt")
    if not torch.cuda.is_available():
        with pytest.raises(MissingEnvironmentError, match="cannot use a GPU"):
            TorchEngine(artifact, provider="cuda")
    package = make_artifact(
        tmp_path / "p", format="aoti", entry="model.pt2", files={"model.pt2": b"PK"}
    )
    with pytest.raises(UsageError, match="compiled already"):
        TorchEngine(package, options=TorchOptions(compile=True))
