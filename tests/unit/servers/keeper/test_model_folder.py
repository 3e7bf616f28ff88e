"""What is in a model's folder is known before an engine reads it."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_artifacts import make_artifact
from safetensors.numpy import save_file

from modelops.config import ModelConfig
from modelops.errors import InputError, IntegrityError, UnsafeInputError
from modelops_servers.keeper.model_folder import check_source

CODE = {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}}


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("exit 1",)


def config(folder: Path, *engine_args: str) -> ModelConfig:
    options = {"engine_args": engine_args}
    return ModelConfig(name="m", source=folder, engine="vllm", options=options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    save_file({"w": np.ones(2, np.float32)}, tmp_path / "model.safetensors")
    check_source(config(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
def test_a_folder_that_asks_for_code_is_refused_by_name(folder: Path, name: str) -> None:
    (folder / name).write_text(json.dumps(CODE))
    with pytest.raises(UnsafeInputError, match=rf"{name} asks for code.*auto_map") as caught:
        check_source(config(folder))
    assert "--trust-remote-code" in (caught.value.hint or "")


def test_only_the_users_own_word_lets_it_run(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({**CODE, "trust_remote_code": True}))
    with pytest.raises(UnsafeInputError):
        check_source(config(folder, "--seed", "1"))
    check_source(config(folder, "--trust_remote_code"))


def test_a_document_that_is_none_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="no valid JSON"):
        check_source(config(folder))


def test_weights_that_would_run_code_are_refused_whoever_is_trusted(folder: Path) -> None:
    evil = pickle.dumps({"w": Evil()})
    (folder / "training_args.bin").write_bytes(evil)
    (folder / "pytorch_model.bin").write_bytes(evil)
    check_source(config(folder))  # with safetensors there, the engine opens no pickle
    (folder / "model.safetensors").unlink()
    for engine_args in ((), ("--trust-remote-code",)):
        with pytest.raises(UnsafeInputError, match=r"os\.system|posix\.system"):
            check_source(config(folder, *engine_args))
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(InputError, match="no weights"):
        check_source(config(folder))


def test_a_damaged_file_and_a_missing_shard_are_named(folder: Path) -> None:
    (folder / "model-2.safetensors").write_bytes(b"\xff" * 64)
    with pytest.raises(InputError, match=r"model-2\.safetensors"):
        check_source(config(folder))
    (folder / "model-2.safetensors").unlink()
    index = {"weight_map": {"w": "model.safetensors", "v": "model-3.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(InputError, match=r"model-3\.safetensors"):
        check_source(config(folder))


def test_an_artifact_is_checked_wholly(tmp_path: Path) -> None:
    made = make_artifact(
        tmp_path / "a", format="huggingface", entry="config.json", files={"config.json": b"{}"}
    )
    check_source(config(made.path))
    (made.path / made.manifest.entry).write_bytes(b"another")
    with pytest.raises(IntegrityError):
        check_source(config(made.path))
