"""What is in a model's folder is known before an engine reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_artifacts import make_artifact

from modelops.config import ModelConfig
from modelops.errors import InputError, IntegrityError, UnsafeInputError
from modelops_servers.keeper.model_folder import check_source

CODE = {"auto_map": {"AutoModelForCausalLM": "modeling_evil.Evil"}}


def config(folder: Path, *engine_args: str) -> ModelConfig:
    options = {"engine_args": engine_args}
    return ModelConfig(name="m", source=folder, engine="vllm", options=options)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "processor_config.json"])
def test_a_folder_that_asks_for_code_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "config.json").write_text("{}")
    check_source(config(tmp_path))
    (tmp_path / name).write_text(json.dumps(CODE))
    with pytest.raises(UnsafeInputError, match=rf"{name} asks for code.*auto_map"):
        check_source(config(tmp_path))


def test_only_the_users_own_word_lets_it_run(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CODE, "trust_remote_code": True}))
    with pytest.raises(UnsafeInputError):
        check_source(config(tmp_path, "--seed", "1"))
    check_source(config(tmp_path, "--trust_remote_code"))


def test_a_document_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="no valid JSON"):
        check_source(config(tmp_path))


def test_an_artifact_is_checked_wholly(tmp_path: Path) -> None:
    made = make_artifact(
        tmp_path / "a", format="huggingface", entry="config.json", files={"config.json": b"{}"}
    )
    check_source(config(made.path))
    (made.path / made.manifest.entry).write_bytes(b"another")
    with pytest.raises(IntegrityError):
        check_source(config(made.path))
