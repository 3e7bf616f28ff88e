"""Looking into checkpoints, safe or not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import tiny_hf
import torch
from safetensors.torch import save_file

from modelops.checkpoint import inspect_checkpoint
from modelops.errors import CheckpointError


class Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_a_training_dict_shows_its_parts(tmp_path: Path) -> None:
    state = {"module.weight": torch.ones(2, 3), "module.bias": torch.ones(2).half()}
    torch.save(
        {"state_dict": state, "epoch": 4, "pytorch-lightning_version": "2.5"}, tmp_path / "w.ckpt"
    )
    seen = inspect_checkpoint(str(tmp_path / "w.ckpt"))
    assert (seen.format, seen.trainer, seen.progress) == (
        "torch",
        "PyTorch Lightning 2.5",
        {"epoch": 4},
    )
    assert (seen.parameters, seen.bytes) == (8, 28)
    assert seen.dtypes == {"float32": 1, "float16": 1}
    assert seen.containers == {"state_dict": 2}
    assert seen.prefixes == {"module.": 2}
    assert seen.refused is None
    assert seen.would_run == ()


def test_two_state_dicts_are_both_shown_and_the_refusal_says_so(tmp_path: Path) -> None:
    state = {"w": torch.ones(2)}
    torch.save({"model": state, "ema": dict(state)}, tmp_path / "w.pt")
    seen = inspect_checkpoint(str(tmp_path / "w.pt"))
    assert [t.name for t in seen.tensors] == ["model.w", "ema.w"]
    assert "2 state dicts" in (seen.refused or "")


def test_c9_a_refused_folder_is_shown_without_its_training_state(tmp_path: Path) -> None:
    folder, marker = tmp_path / "checkpoint", tmp_path / "marker"
    folder.mkdir()
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModel": "x.Y"}}))
    for name in ("optimizer.pt", "rng_state_0.pth", "training_args.bin", "scheduler.pt"):
        torch.save(Touch(marker), folder / name)
    torch.save({"w": torch.ones(1)}, tmp_path / "outside.pt")
    (folder / "link.pt").symlink_to(tmp_path / "outside.pt")
    os.mkfifo(folder / "pipe.pt")
    seen = inspect_checkpoint(str(folder))
    assert "auto_map" in (seen.refused or "")
    assert set(seen.files) == {"model.safetensors"}
    assert seen.tensors
    assert seen.would_run == ()
    assert not marker.exists()


def test_a_damaged_safetensors_is_shown_as_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"w": torch.ones(4)}, path)
    path.write_bytes(path.read_bytes()[:-1])
    seen = inspect_checkpoint(str(path))
    assert "'w'" in (seen.refused or "")
    assert seen.tensors == ()


@pytest.mark.parametrize("kind", ["missing", "fifo", "device"])
def test_what_is_no_file_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "w.pt"
    if kind == "fifo":
        os.mkfifo(path)
    with pytest.raises(CheckpointError):
        inspect_checkpoint("/dev/zero" if kind == "device" else str(path))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\x89HDF\r\n\x1a\n", "hdf5"),
        (b"hello", "unknown"),
    ],
)
def test_other_formats_are_told_by_their_content(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    seen = inspect_checkpoint(str(tmp_path / "model.safetensors"))
    assert seen.format == what
    assert what in (seen.refused or "")


def test_an_unsafe_pickle_is_told_as_json(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1), "x": Touch(tmp_path / "marker")}, tmp_path / "w.pt")
    seen = inspect_checkpoint(str(tmp_path / "w.pt"))
    found = json.loads(seen.model_dump_json())
    assert found["would_run"] == ["posix.system"]
    assert not (tmp_path / "marker").exists()
