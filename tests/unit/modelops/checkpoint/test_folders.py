"""C5, C9, C13: folders of files, of which only those that belong to the model are opened."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import tiny_hf
import torch
from safetensors.torch import save_file

from modelops.checkpoint import inspect_checkpoint, load_weights, open_checkpoint
from modelops.errors import CheckpointError, ModelopsError, UnsafeInputError


class Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "checkpoint"
    made.mkdir()
    tiny_hf.save(made, "BertModel", tiny_hf.bert_config())
    return made


@pytest.mark.slow
def test_minilm_loads_as_transformers_loads_it(minilm: Path) -> None:
    import transformers

    checkpoint = open_checkpoint(str(minilm))
    assert checkpoint.format == "huggingface"
    assert "tokenizer.json" in checkpoint.carried
    assert "1_Pooling/config.json" in checkpoint.carried
    config = transformers.AutoConfig.from_pretrained(minilm)
    model = transformers.AutoModel.from_config(config).eval()
    load_weights(model, checkpoint)
    theirs = transformers.AutoModel.from_pretrained(minilm).eval()
    ids = torch.tensor([[101, 7592, 2088, 102]])
    with torch.inference_mode():
        ours, expected = model(ids).last_hidden_state, theirs(ids).last_hidden_state
    assert torch.equal(ours, expected)


def test_the_digest_is_of_the_contents_not_of_the_place(folder: Path, tmp_path: Path) -> None:
    first = open_checkpoint(str(folder)).sha256
    moved = tmp_path / "moved" / "elsewhere"
    shutil.copytree(folder, moved)
    assert open_checkpoint(str(moved)).sha256 == first
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"hidden_act": "relu"}))
    assert open_checkpoint(str(moved)).sha256 != first


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_c5_a_request_for_code_is_refused_by_file(folder: Path, name: str) -> None:
    path = folder / name
    asks = {"auto_map": {"AutoModel": "modeling.Net"}, "trust_remote_code": True}
    path.write_text(json.dumps(json.loads(path.read_text()) | asks))
    (folder / "modeling.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UnsafeInputError, match=name.replace(".", r"\.")) as caught:
        open_checkpoint(str(folder))
    assert caught.value.exit_code == 3
    assert "--model" in (caught.value.hint or "")


def test_c5_a_request_deep_inside_is_found(folder: Path) -> None:
    path = folder / "config.json"
    nested = {"vision_config": {"auto_map": {"AutoConfig": "other/repo--config.C"}}}
    path.write_text(json.dumps(json.loads(path.read_text()) | nested))
    with pytest.raises(UnsafeInputError, match="vision_config"):
        open_checkpoint(str(folder))


def test_c5_modules_from_elsewhere_are_refused(folder: Path) -> None:
    (folder / "modules.json").write_text('[{"idx": 0, "path": "", "type": "evil.Module"}]')
    with pytest.raises(UnsafeInputError, match=r"evil\.Module"):
        open_checkpoint(str(folder))


def test_c9_training_state_beside_good_weights_is_never_opened(
    folder: Path, tmp_path: Path
) -> None:
    for name in ("rng_state.pth", "optimizer.pt", "scheduler.pt", "training_args.bin"):
        torch.save(Touch(tmp_path / "marker"), folder / name)
    os.mkfifo(folder / "rng_state_1.pth")
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    checkpoint = open_checkpoint(str(folder))
    assert checkpoint.tensors()
    assert any("not opened: pytorch_model.bin" in note for note in checkpoint.notes)
    assert {p.name for p in checkpoint.files} == {"model.safetensors"}
    assert not (tmp_path / "marker").exists()


def sharded(folder: Path, **changes: str) -> Path:
    tensors = {"a": torch.ones(2), "b": torch.zeros(3)}
    (folder / "model.safetensors").unlink()
    names = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    for key, name in names.items():
        save_file({key: tensors[key]}, folder / name)
    index = {"metadata": {}, "weight_map": names | changes}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def test_c13_shards_are_joined(folder: Path) -> None:
    found = open_checkpoint(str(sharded(folder))).tensors()
    assert set(found) == {"a", "b"}


def test_c13_a_missing_shard_is_named(folder: Path) -> None:
    (sharded(folder) / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointError, match="model-00002-of-00002"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize("name", ["../x.safetensors", "/etc/passwd", "a/../../x", "..", "", "a\0b"])
def test_c13_an_index_that_points_outside_is_refused(folder: Path, name: str) -> None:
    (folder.parent / "x.safetensors").write_bytes(b"")
    with pytest.raises(ModelopsError) as caught:
        open_checkpoint(str(sharded(folder, b=name)))
    assert caught.value.exit_code == 3


def test_c13_a_shard_that_is_a_link_out_is_refused(folder: Path, tmp_path: Path) -> None:
    sharded(folder)
    shard = folder / "model-00002-of-00002.safetensors"
    outside = tmp_path / "outside.safetensors"
    shard.rename(outside)
    shard.symlink_to(outside)
    with pytest.raises(UnsafeInputError, match="model-00002-of-00002"):
        open_checkpoint(str(folder))


@pytest.mark.parametrize(
    "changes",
    [{"c": "model-00001-of-00002.safetensors"}, {"b": "model-00001-of-00002.safetensors"}],
)
def test_c13_an_index_that_disagrees_with_its_shards_is_refused(
    folder: Path, changes: dict[str, str]
) -> None:
    with pytest.raises(CheckpointError):
        open_checkpoint(str(sharded(folder, **changes)))


def test_what_is_no_regular_file_never_blocks(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(ModelopsError):
        open_checkpoint(str(folder))
    with pytest.raises(ModelopsError):
        open_checkpoint("/dev/zero")


@pytest.mark.parametrize(
    ("name", "what"),
    [("adapter_config.json", "LoRA"), (".metadata", "torch.distributed"), ("latest", "DeepSpeed")],
)
def test_other_kinds_of_folder_are_told_what_to_do(tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / name).write_text("{}")
    with pytest.raises(CheckpointError, match=what) as caught:
        open_checkpoint(str(tmp_path))
    assert caught.value.hint


def test_an_empty_folder_says_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json.*model\.safetensors"):
        open_checkpoint(str(tmp_path))


def test_inspection_shows_what_a_careless_load_would_run(tmp_path: Path) -> None:
    torch.save(
        {"w": torch.ones(2, 3), "step": 4, "x": Touch(tmp_path / "marker")}, tmp_path / "w.pt"
    )
    seen = inspect_checkpoint(str(tmp_path / "w.pt"))
    assert any("system" in name for name in seen.would_run)
    assert seen.refused
    assert seen.progress["step"] == 4
    assert ("w", "float32", (2, 3)) in [(t.name, t.dtype, t.shape) for t in seen.tensors]
    assert not (tmp_path / "marker").exists()
