"""C12: which mappings of a training dict are weights, and when there is more than one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.checkpoint.containers import find_containers
from modelops.errors import CheckpointError


def weights(value: float = 1.0) -> dict[str, torch.Tensor]:
    return {"weight": torch.full((2, 2), value), "bias": torch.full((2,), value)}


def keys(root: Any) -> list[str]:
    return [c.key for c in find_containers(root, lambda v: isinstance(v, torch.Tensor))]


@pytest.mark.parametrize(
    "name",
    [
        "model",
        "net",
        "optimized_model",
        "upgraded",
        "optimal",
        "exp_avg_model",
        "strong",
        "student",
    ],
)
def test_c12_a_name_that_only_resembles_training_state_is_weights(name: str) -> None:
    assert keys({name: weights(), "step": 1}) == [name]


@pytest.mark.parametrize(
    "name",
    [
        "optimizer", "optimizer_state_dict", "optimizer_states", "optimizerState", "optim",
        "my_optimizer", "scheduler", "lr_scheduler", "lrScheduler", "scaler", "grad_scaler",
        "rng_state", "grads", "gradients", "exp_avg", "exp_avg_sq",
    ],
)  # fmt: skip
def test_c12_training_state_is_no_candidate(name: str) -> None:
    assert keys({"model": weights(), name: weights()}) == ["model"]


def test_c12_one_mapping_under_two_names_is_one(tmp_path: Path) -> None:
    state = weights()
    torch.save({"state_dict": state, "model": state}, tmp_path / "w.pt")
    opened = open_checkpoint(str(tmp_path / "w.pt"))
    assert set(opened.tensors()) == {"weight", "bias"}


def test_c12_the_same_names_at_the_top_and_inside_are_two_versions(tmp_path: Path) -> None:
    torch.save({**weights(), "ema": weights(2.0)}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=r"2 state dicts.*the top level") as caught:
        open_checkpoint(str(tmp_path / "w.pt"))
    assert "--weights-key ema" in (caught.value.hint or "")
    chosen = open_checkpoint(str(tmp_path / "w.pt"), weights_key="ema")
    assert torch.equal(chosen.tensors()["bias"], torch.full((2,), 2.0))


def test_c12_tensors_of_other_names_beside_the_weights_are_left_aside() -> None:
    assert keys({"model": weights(), "mean": torch.ones(3), "std": torch.ones(3)}) == ["model"]


def test_c12_metrics_are_weights_only_where_there_is_nothing_else(tmp_path: Path) -> None:
    metrics = {"loss": torch.tensor(0.3), "accuracy": torch.tensor(0.9)}
    assert keys({"model": weights(), "metrics": metrics}) == ["model"]
    assert keys({"model": {"scale": torch.tensor(1.0)}, "step": 3}) == ["model"]


def test_c12_keys_with_dots_and_numbers_can_be_chosen(tmp_path: Path) -> None:
    torch.save({"a.b": weights(), 3: weights(3.0)}, tmp_path / "w.pt")
    for key, value in (("a.b", 1.0), ("3", 3.0)):
        opened = open_checkpoint(str(tmp_path / "w.pt"), weights_key=key)
        assert torch.equal(opened.tensors()["bias"], torch.full((2,), value))


def test_a_mapping_that_holds_itself_ends(tmp_path: Path) -> None:
    root: dict[str, Any] = {"step": 1}
    root["self"] = root
    torch.save(root, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="no state dict"):
        open_checkpoint(str(tmp_path / "w.pt"))
    assert inspect_checkpoint(str(tmp_path / "w.pt")).containers == {}
