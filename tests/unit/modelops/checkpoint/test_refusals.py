"""What is no plain weights: refused with what it is, and how to save it."""

from __future__ import annotations

import argparse
import re
import sys
import tarfile
import types
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.errors import CheckpointError, InputError, UnsafeInputError

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "checkpoints"


def a_model(path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), path)


def an_optimizer(path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save(optimizer.state_dict(), path)


def only_training_state(path: Path) -> None:
    torch.save({"optimizer_states": [{"state": {}, "param_groups": []}], "epoch": 1}, path)


def a_namespace(path: Path) -> None:
    torch.save({"model": {"w": torch.ones(2)}, "args": argparse.Namespace(lr=1)}, path)


def a_tar(path: Path) -> None:
    path.with_suffix(".txt").write_text("weights")
    with tarfile.open(path, "w") as out:
        out.add(path.with_suffix(".txt"), "weights")


def an_hdf5(path: Path) -> None:
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))


def a_keras(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as out:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            out.writestr(name, "{}")


def a_saved_model(path: Path) -> None:
    path.mkdir()
    (path / "saved_model.pb").write_bytes(b"\x08\x01")


def a_tensorflow_checkpoint(path: Path) -> None:
    path.mkdir()
    (path / "checkpoint").write_text('model_checkpoint_path: "model"')
    (path / "model.index").write_bytes(b"\0")


def a_legacy_megatron(path: Path) -> None:
    for rank in ("mp_rank_00", "mp_rank_01"):
        (path / "iter_0000010" / rank).mkdir(parents=True)
        a_namespace(path / "iter_0000010" / rank / "model_optim_rng.pt")
    (path / "latest_checkpointed_iteration.txt").write_text("10")


def a_megatron_of_steps(path: Path) -> None:
    (path / "iter_0000010").mkdir(parents=True)
    (path / "iter_0000010" / ".metadata").write_bytes(b"\x80\x02}.")
    (path / "latest_checkpointed_iteration.txt").write_text("10")


@pytest.mark.parametrize(
    ("make", "what", "hint"),
    [
        (a_model, r"torch\.nn\.modules\.linear\.Linear", "a whole object.*state_dict"),
        (an_optimizer, "state of an optimizer", "beside it"),
        (only_training_state, "state of an optimizer", "beside it"),
        (a_namespace, r"argparse\.Namespace", "save only its weights"),
        (a_tar, "it is tar", "re-saved"),
        (an_hdf5, "it is hdf5", "safetensors"),
        (a_keras, "Keras", "safetensors"),
        (a_saved_model, "SavedModel", "safetensors"),
        (a_tensorflow_checkpoint, "TensorFlow", "safetensors"),
        (a_legacy_megatron, r"legacy checkpoint of Megatron-LM \(2 ranks\)", "torch_dist"),
        (a_megatron_of_steps, "1 saved steps", "iter_0000010"),
    ],
)
def test_each_is_named_with_what_to_do(
    tmp_path: Path, make: Callable[[Path], None], what: str, hint: str
) -> None:
    path = tmp_path / "given.pt"
    make(path)
    with pytest.raises(InputError, match=what) as caught:
        open_checkpoint(str(path))
    assert caught.value.exit_code == 3
    assert re.search(hint, caught.value.hint or "")
    assert inspect_checkpoint(str(path)).refused == caught.value.message


@pytest.mark.parametrize(
    ("folder", "file"),
    [
        ("deepspeed-zero2", "zero_pp_rank_1_mp_rank_00_optim_states.pt"),
        ("deepspeed-zero3", "zero_pp_rank_0_mp_rank_00_model_states.pt"),
    ],
)
def test_one_ranks_share_points_to_its_folder(folder: str, file: str) -> None:
    step = GOLDEN / folder / "global_step2"
    with pytest.raises(CheckpointError, match="one rank's share") as caught:
        open_checkpoint(str(step / file))
    assert str(step) in (caught.value.hint or "")


def test_lightnings_own_containers_are_no_foreign_code() -> None:
    seen = inspect_checkpoint(str(GOLDEN / "lightning.ckpt"))
    assert (seen.trainer, seen.refused) == ("PyTorch Lightning 2.6.6", None)
    assert seen.progress == {"epoch": 2, "global_step": 2}
    assert seen.would_run == ("lightning.fabric.utilities.data.AttributeDict",)
    found = open_checkpoint(str(GOLDEN / "lightning.ckpt")).tensors()
    expected = load_file(GOLDEN / "lightning.safetensors")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())


def test_c14_lightning_with_hyperparameters_of_a_foreign_class_is_refused() -> None:
    with pytest.raises(UnsafeInputError, match=r"1 thing.*__main__\.Kind") as caught:
        open_checkpoint(str(GOLDEN / "lightning-enum.ckpt"))
    assert "save only its weights" in (caught.value.hint or "")
    seen = inspect_checkpoint(str(GOLDEN / "lightning-enum.ckpt"))
    assert seen.would_run == ("__main__.Kind",)
    assert len(seen.tensors) == 13


@pytest.fixture
def old_lightning(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the class by which a release before 1.5 named the state of a callback."""
    name = "pytorch_lightning.callbacks.model_checkpoint"
    for part in ("pytorch_lightning", "pytorch_lightning.callbacks", name):
        monkeypatch.setitem(sys.modules, part, types.ModuleType(part))
    cls = type("ModelCheckpoint", (), {"__module__": name})
    sys.modules[name].ModelCheckpoint = cls  # type: ignore[attr-defined]
    return cls


def test_callbacks_named_by_their_classes_are_read_in_lightnings_files_alone(
    tmp_path: Path, old_lightning: Any
) -> None:
    path = tmp_path / "w.ckpt"
    held = {"state_dict": {"w": torch.arange(3.0)}, "callbacks": {old_lightning: {"best": 1.0}}}
    torch.save(held | {"pytorch-lightning_version": "1.4.9"}, path)
    assert open_checkpoint(str(path)).tensors()["w"].tolist() == [0, 1, 2]
    torch.save(held, path)
    with pytest.raises(UnsafeInputError, match="ModelCheckpoint"):
        open_checkpoint(str(path))
