"""The gateway's config refuses what cannot be meant, and never shows a key."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from modelops.config import GatewayConfig, LimitsConfig, ModelConfig, ServerConfig

MODEL = {"name": "minilm", "source": "artifacts/minilm", "engine": "onnxruntime"}


def test_defaults_are_loopback_and_without_keys() -> None:
    config = GatewayConfig(models=[MODEL])
    assert config.server.host == "127.0.0.1"
    assert config.server.api_keys == ()
    assert config.models[0].provider == "auto"


@pytest.mark.parametrize(
    "change",
    [{"providr": "cpu"}, {"provider": "gpu"}, {"threads": 0}, {"name": "../x"}, {"name": ""},
     {"name": "a b"}, {"name": "a" * 129}, {"name": "é"}, {"admission": {"max_queue": 0}}],
)  # fmt: skip
def test_a_model_that_cannot_be_meant_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ModelConfig(**(MODEL | change))


def test_two_models_of_one_name_and_none_at_all_are_refused() -> None:
    with pytest.raises(ValidationError, match="minilm"):
        GatewayConfig(models=[MODEL, MODEL])
    with pytest.raises(ValidationError):
        GatewayConfig(models=[])


@pytest.mark.parametrize("key", ["", "short", "with space in it", "tab\tin the key", "ключ-ключ"])
def test_h9_a_weak_or_impossible_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ServerConfig(api_keys=[key])
    assert not key or key not in str(caught.value)


def test_keys_are_secret_in_every_form() -> None:
    config = ServerConfig(api_keys=["a-long-secret-key"])
    assert "secret-key" not in repr(config) + str(config) + config.model_dump_json()


def test_json_is_never_allowed_more_than_a_body() -> None:
    assert LimitsConfig(max_body_mb=1, max_json_mb=16).max_json_bytes == 2**20
