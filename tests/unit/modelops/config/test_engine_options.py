"""Options of engines that are servers of their own, as modelops.yaml gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from modelops.config import ModelConfig, ModelEntry, OpenAIOptions, VllmOptions
from modelops.config.file import read_config
from modelops.errors import InputError


def read(tmp_path: Path, entry: str) -> ModelEntry:
    file = tmp_path / "modelops.yaml"
    file.write_text(f"version: 1\nmodels:\n  - {{name: m, {entry}}}\n")
    return read_config(file).config.models[0]


def refusal(tmp_path: Path, entry: str) -> str:
    with pytest.raises(InputError) as caught:
        read(tmp_path, entry)
    return caught.value.message


def test_an_engine_has_its_own_options(tmp_path: Path) -> None:
    options = read(tmp_path, "source: x, engine: vllm, options: {kv_cache_gib: 1}").options
    assert options == VllmOptions(kv_cache_gib=1)
    assert read(tmp_path, "source: x, engine: vllm").options == VllmOptions()
    found = read(tmp_path, "engine: openai, url: 'http://h:8000/v1/', options: {model: big}")
    assert found.options == OpenAIOptions(model="big")
    assert (found.url, found.source) == ("http://h:8000/v1", None)
    assert read(tmp_path, "source: x").options is None


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("source: x, engine: vllm, options: {kv_cache_dtyp: fp8}", "did you mean kv_cache_dtype?"),
        ("source: x, engine: vllm, options: {kv_cache_dtype: int4}", "'auto', 'bf16', 'fp8'"),
        ("source: x, engine: vllm, options: {max_model_len: '9'}", "must be a whole number"),
        ("source: x, engine: vllm, options: {enforce_eager: 1}", "must be true or false"),
        ("source: x, engine: vllm, options: {speculative: {token: 1}}", "did you mean tokens?"),
        ("source: x, engine: vllm, options: {speculative: {lookup_min: 9}}", "lookup_min is 9"),
        ("source: x, engine: vllm, options: {engine_args: --x}", "must be a list"),
        ("source: x, engine: vllm, inline: true", "inline is for engines of tensors"),
        ("source: x, engine: vllm, batching: {max_size: 4}", "batching is for engines of tensors"),
        ("source: x, options: {kv_cache_dtype: fp8}", "there are options for: engine: vllm"),
        ("source: x, engine: onnxruntime, options: {}", "there are options for: engine: vllm"),
        ("engine: vllm", "models[0].source is missing"),
        ("engine: openai", "models[0].url is missing"),
        ("engine: openai, url: 'http://h', source: x", "has a url, and no source"),
        ("engine: openai, url: 'http://h', replicas: 2", "replicas must be 1"),
        ("source: x, url: 'http://h'", "only the engine 'openai' has a url"),
        ("engine: openai, url: 'ftp://h'", "an http:// or https:// address"),
        ("engine: openai, url: 'h:8000'", "an http:// or https:// address"),
        ("engine: openai, url: 'http://u:secret@h'", "key goes into options.key_variable"),
        ("engine: openai, url: 'http://h', options: {key_variable: sk-abc}", "not the name"),
    ],
)
def test_what_cannot_be_meant_is_told_where_it_stands(
    tmp_path: Path, entry: str, says: str
) -> None:
    message = refusal(tmp_path, entry)
    assert says in message
    assert "models[0]" in message
    assert "line 3" in message
    assert "secret" not in message
    assert "sk-abc" not in message


@pytest.mark.parametrize(
    "argument",
    [
        "--uds", "--uds=/tmp/x", "--host", "--port", "--api-key", "--api_key=x", "--model",
        "--served-model-name", "--served_model_name", "--ssl-keyfile", "--config", "--root-path",
        "--kv-cache-dtype", "--kv_cache_dtype=int8_per_token_head", "--max-model-len",
        "--data-parallel-size", "--no-enforce-eager", "--speculative-config.method", "--help",
        "--disable-log-stats", "--api-server-count", "--ud", "--kv-cache-dty", "--served",
        "--tensor-parallel-size", "--load-format=dummy", "-tp", "-h", "value-first", "",
    ],
)  # fmt: skip
def test_what_the_gateway_needs_for_itself_cannot_be_given(argument: str) -> None:
    with pytest.raises(ValidationError):
        VllmOptions(engine_args=(argument,))


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-num-seqs", "16"),
        ("--max-num-seqs=16",),
        ("--tokenizer-mode", "slow"),
        ("--kv-cache-metrics",),
        ("--hf-overrides", '{"a": 1}'),
        ("--seed", "-1"),
        ("--attention-backend", "TRITON_ATTN"),
    ],
)
def test_all_other_arguments_can_be(arguments: tuple[str, ...]) -> None:
    assert VllmOptions(engine_args=arguments).engine_args == arguments


def test_a_config_survives_its_way_to_the_keeper() -> None:
    fields: dict[str, Any] = {"name": "m", "source": Path("x"), "engine": "vllm"}
    config = ModelConfig(**fields, options={"speculative": {}, "engine_args": ["--seed", "1"]})
    again = ModelConfig.model_validate(config.model_dump(mode="json"))
    assert again == config
    assert isinstance(again.options, VllmOptions)
