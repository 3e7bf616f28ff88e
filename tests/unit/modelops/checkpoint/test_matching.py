"""C10, C11, C12: names and shapes, whatever a trainer wrapped around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from modelops.checkpoint import load_weights, open_checkpoint
from modelops.errors import CheckpointError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.second = nn.Linear(4, 2)


ADAM = {"state": {0: {"exp_avg": torch.ones(4)}}, "param_groups": []}


def state(**changes: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {**Net().state_dict(), **changes}


def load(tmp_path: Path, value: Any, *, key: str | None = None) -> tuple[Net, tuple[str, ...]]:
    torch.save(value, tmp_path / "w.pt")
    checkpoint = open_checkpoint(str(tmp_path / "w.pt"), weights_key=key)
    model = Net()
    notes = load_weights(model, checkpoint)
    return model, (*checkpoint.notes, *notes)


def prefixed(
    prefix: str, tensors: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    return {prefix + name: tensor for name, tensor in (tensors or state()).items()}


@pytest.mark.parametrize(
    "prefix",
    [
        "", "module.", "_orig_mod.", "model.", "module._orig_mod.", "_orig_mod.module.",
        "module.module.", "model.module._orig_mod.", "_orig_mod.model.module.", "net.",
        "_forward_module.model.", "_fsdp_wrapped_module._orig_mod.",
    ],
)  # fmt: skip
def test_c11_prefixes_come_off_in_any_nesting_and_are_said(tmp_path: Path, prefix: str) -> None:
    model, notes = load(tmp_path, prefixed(prefix))
    for name, tensor in state().items():
        assert torch.equal(model.state_dict()[name], tensor)
    for part in set(prefix.split(".")) - {""}:
        assert any(part in note for note in notes), notes


def test_c11_wrappers_in_the_middle_come_off(tmp_path: Path) -> None:
    inner = {
        "first._orig_mod.weight": "first.weight",
        "first._orig_mod.bias": "first.bias",
        "second._fsdp_wrapped_module._checkpoint_wrapped_module.weight": "second.weight",
    }
    values = state()
    renamed = {old: values.pop(new) for old, new in inner.items()}
    model, _ = load(tmp_path, values | renamed)
    assert torch.equal(model.first.weight, renamed["first._orig_mod.weight"])


def test_c11_a_collision_is_an_error_that_names_both(tmp_path: Path) -> None:
    doubled = prefixed("_orig_mod.") | state()
    with pytest.raises(CheckpointError, match=r"_orig_mod\.first\.weight.*first\.weight"):
        load(tmp_path, doubled)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: {"step": 7, "model_state": s, "optimizer_state": ADAM},
        lambda s: {"epoch": 2, "state_dict": s, "lr_schedulers": [{"t": 1}]},
        lambda s: {"model_state_dict": s, "loss": 0.3, "optimizer_state_dict": ADAM},
        lambda s: {"model": s, "args": {"lr": 1e-3}},
        lambda s: {"checkpoint": {"ema": s}},
        lambda s: {"state_dict": prefixed("model.module.", s)},
    ],
    ids=["model_state", "lightning", "model_state_dict", "model", "nested", "prefixed"],
)  # fmt: skip
def test_c12_the_weights_are_found_in_training_dicts(tmp_path: Path, wrap: Any) -> None:
    model, notes = load(tmp_path, wrap(state()))
    assert torch.equal(model.second.weight, state()["second.weight"])
    assert any("took the weights from" in note for note in notes)


def test_c12_two_candidates_are_listed_and_a_key_chooses(tmp_path: Path) -> None:
    other = {name: tensor + 1 for name, tensor in state().items()}
    both = {"state_dict": state(), "ema": {"shadow": other}}
    with pytest.raises(CheckpointError, match=r"state_dict.*ema\.shadow") as caught:
        load(tmp_path, both)
    assert "--weights-key" in (caught.value.hint or "")
    model, _ = load(tmp_path, both, key="ema.shadow")
    assert torch.equal(model.first.bias, other["first.bias"])
    with pytest.raises(CheckpointError, match=r"'nowhere'.*ema\.shadow"):
        load(tmp_path, both, key="nowhere")


def test_c12_no_weights_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no state dict"):
        load(tmp_path, {"epoch": 3, "optimizer": {"state": {0: torch.ones(2)}, "param_groups": []}})


def test_c10_missing_and_unexpected_are_listed_with_the_nearest(tmp_path: Path) -> None:
    values = state()
    values["frist.weight"] = values.pop("first.weight")
    with pytest.raises(CheckpointError) as caught:
        load(tmp_path, values)
    text = str(caught.value)
    assert "1 tensor missing from the checkpoint: first.weight (near frist.weight)" in text
    assert "1 tensor not in the model: frist.weight" in text


def test_c10_the_first_ten_and_how_many(tmp_path: Path) -> None:
    extra = {f"head.{i}.weight": torch.ones(1) for i in range(25)}
    with pytest.raises(
        CheckpointError, match="25 tensors not in the model, the first 10"
    ) as caught:
        load(tmp_path, state() | extra)
    assert str(caught.value).count("head.") == 10


def test_c10_wrong_shapes_say_both(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"second\.weight is float32\[2, 5\].*\[2, 4\]"):
        load(tmp_path, state(**{"second.weight": torch.ones(2, 5)}))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_c10_weights_that_are_not_finite_are_named(tmp_path: Path, bad: float) -> None:
    weight = state()["first.weight"].clone()
    weight[1, 2] = bad
    with pytest.raises(CheckpointError, match=r"first\.weight"):
        load(tmp_path, state(**{"first.weight": weight}))


def test_a_model_that_was_refused_is_as_it_was(tmp_path: Path) -> None:
    torch.save(state(**{"second.weight": torch.ones(2, 5)}), tmp_path / "w.pt")
    model = Net()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError):
        load_weights(model, open_checkpoint(str(tmp_path / "w.pt")))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(4), persistent=False)


@pytest.mark.parametrize(
    "held", [["embed.weight"], ["head.weight"], ["embed.weight", "head.weight"]]
)
def test_tied_weights_may_be_held_once_and_stay_tied(tmp_path: Path, held: list[str]) -> None:
    value = torch.randn(5, 3)
    torch.save({name: value.clone() for name in held}, tmp_path / "w.pt")
    model = Tied()
    load_weights(model, open_checkpoint(str(tmp_path / "w.pt")))
    assert model.head.weight is model.embed.weight
    assert torch.equal(model.head.weight, value)
    assert torch.equal(model.positions, torch.arange(4))


def test_tied_weights_that_differ_are_an_error(tmp_path: Path) -> None:
    torch.save(
        {"embed.weight": torch.ones(5, 3), "head.weight": torch.zeros(5, 3)}, tmp_path / "w.pt"
    )
    with pytest.raises(CheckpointError, match="ties"):
        load_weights(Tied(), open_checkpoint(str(tmp_path / "w.pt")))


def test_the_checkpoints_dtype_is_kept(tmp_path: Path) -> None:
    torch.save(
        {k: v.to(torch.bfloat16) if v.is_floating_point() else v for k, v in state().items()},
        tmp_path / "w.pt",
    )
    model = Net()
    load_weights(model, open_checkpoint(str(tmp_path / "w.pt")))
    assert model.first.weight.dtype == torch.bfloat16
