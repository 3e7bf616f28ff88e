"""C10: names that changed between releases, buffers that are computed, and what stays strict."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from modelops.checkpoint import load_weights, open_checkpoint
from modelops.errors import CheckpointError, UsageError


class Encoder(nn.Module):
    base_model_prefix = "bert"  # as transformers names the encoder inside a headed model

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(3, 3)
        self.LayerNorm = nn.LayerNorm(3)
        self.register_buffer("position_ids", torch.arange(4), persistent=False)


class Headed(nn.Module):
    base_model_prefix = "bert"

    def __init__(self) -> None:
        super().__init__()
        self.bert = Encoder()
        self.classifier = nn.Linear(3, 2)


def load(
    model: nn.Module, tensors: dict[str, torch.Tensor], tmp_path: Path, **options: tuple[str, ...]
) -> tuple[str, ...]:
    torch.save(tensors, tmp_path / "w.pt")
    return load_weights(model, open_checkpoint(str(tmp_path / "w.pt")), **options)


def test_layer_norms_old_names_are_read(tmp_path: Path) -> None:
    tensors = Encoder().state_dict()
    tensors["LayerNorm.gamma"] = tensors.pop("LayerNorm.weight") + 2
    tensors["LayerNorm.beta"] = tensors.pop("LayerNorm.bias") + 3
    model = Encoder()
    notes = load(model, tensors, tmp_path)
    assert torch.equal(model.LayerNorm.weight, torch.full((3,), 3.0))
    assert torch.equal(model.LayerNorm.bias, torch.full((3,), 3.0))
    assert any("older naming" in note for note in notes)


def test_both_namings_of_one_tensor_are_refused(tmp_path: Path) -> None:
    tensors = Encoder().state_dict() | {"LayerNorm.gamma": torch.zeros(3)}
    with pytest.raises(CheckpointError, match=r"LayerNorm\.gamma"):
        load(Encoder(), tensors, tmp_path)


def test_weight_norm_of_before_parametrizations_is_read(tmp_path: Path) -> None:
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
    tensors = {"0.bias": torch.ones(2), "0.weight_g": torch.ones(2, 1), "0.weight_v": torch.eye(2)}
    load(model, tensors, tmp_path)
    assert torch.equal(model[0].weight, torch.eye(2))


def test_a_computed_buffer_in_the_file_never_replaces_the_models(tmp_path: Path) -> None:
    tensors = Encoder().state_dict() | {"position_ids": torch.zeros(4, dtype=torch.int64)}
    model = Encoder()
    notes = load(model, tensors, tmp_path)
    assert torch.equal(model.position_ids, torch.arange(4))
    assert any("position_ids" in note for note in notes)


def test_a_batch_counter_that_the_file_lacks_keeps_its_start(tmp_path: Path) -> None:
    model = nn.BatchNorm1d(2)
    tensors = {k: v + 5 for k, v in model.state_dict().items() if k != "num_batches_tracked"}
    notes = load(model, tensors, tmp_path)
    assert int(model.num_batches_tracked) == 0
    assert any("num_batches_tracked" in note for note in notes)
    with pytest.raises(CheckpointError, match="running_var"):
        load(model, {k: v for k, v in tensors.items() if k != "running_var"}, tmp_path)


def test_an_encoder_takes_the_encoder_out_of_a_headed_checkpoint(tmp_path: Path) -> None:
    source, model = Headed(), Encoder()
    notes = load(model, source.state_dict(), tmp_path)
    assert all(torch.equal(v, source.bert.state_dict()[k]) for k, v in model.state_dict().items())
    assert any("classifier.weight" in note for note in notes)


def test_a_head_is_never_left_at_its_random_start(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing.*classifier\.weight"):
        load(Headed(), Encoder().state_dict(), tmp_path)


def test_only_what_is_allowed_may_go_unused(tmp_path: Path) -> None:
    tensors = Encoder().state_dict() | {"pooler.dense.weight": torch.ones(1)}
    with pytest.raises(CheckpointError, match=r"pooler\.dense\.weight"):
        load(Encoder(), tensors, tmp_path)
    notes = load(Encoder(), tensors, tmp_path, unused_ok=("pooler.*",))
    assert any("pooler.dense.weight" in note for note in notes)
    with pytest.raises(CheckpointError, match=r"head\.weight"):
        load(Encoder(), tensors | {"head.weight": torch.ones(1)}, tmp_path, unused_ok=("pooler.*",))


def test_integers_never_fill_a_float_parameter(tmp_path: Path) -> None:
    tensors = Encoder().state_dict() | {"dense.weight": torch.ones(3, 3, dtype=torch.int64)}
    with pytest.raises(CheckpointError, match=r"dense\.weight is int64\[3, 3\]"):
        load(Encoder(), tensors, tmp_path)


def test_a_model_on_the_meta_device_is_filled_or_refused(tmp_path: Path) -> None:
    tensors = Encoder().state_dict()
    with torch.device("meta"):
        model = Encoder()
    with pytest.raises(UsageError, match="position_ids"):
        load(model, tensors, tmp_path)
    with torch.device("meta"):
        plain = nn.Linear(3, 3)
    load(plain, {"weight": torch.eye(3), "bias": torch.ones(3)}, tmp_path)
    assert torch.equal(plain(torch.zeros(1, 3)), torch.ones(1, 3))


def test_an_lstm_computes_with_the_weights_it_was_given(tmp_path: Path) -> None:
    source, model = nn.LSTM(2, 3), nn.LSTM(2, 3)
    load(model, source.state_dict(), tmp_path)
    x = torch.randn(4, 1, 2)
    assert torch.equal(model(x)[0], source(x)[0])


def test_c10_an_additive_mask_may_be_minus_infinity_but_not_nan(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mask", torch.zeros(2))

    load(Masked(), {"mask": torch.tensor([0.0, float("-inf")])}, tmp_path)
    with pytest.raises(CheckpointError, match=r"mask \(1 of 2 values\)"):
        load(Masked(), {"mask": torch.tensor([0.0, float("nan")])}, tmp_path)


def test_c10_bad_values_in_many_tensors_are_counted(tmp_path: Path) -> None:
    model = nn.Sequential(*(nn.Linear(1, 1) for _ in range(7)))
    bad = {k: torch.full_like(v, float("nan")) for k, v in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"14 tensors hold NaN.* and 4 more"):
        load(model, bad, tmp_path)
