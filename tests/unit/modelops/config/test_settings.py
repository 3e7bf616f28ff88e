"""The gateway's config refuses what cannot be meant, and never shows a key."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from modelops.config import (
    ConfigFile,
    GatewayConfig,
    LimitsConfig,
    ModelConfig,
    ServerConfig,
    is_loopback,
)

MODEL = {"name": "minilm", "source": "artifacts/minilm", "engine": "onnxruntime"}


def test_defaults_are_loopback_and_without_keys() -> None:
    config = GatewayConfig(models=[MODEL])
    assert config.server.host == "127.0.0.1"
    assert config.server.api_keys == ()
    assert config.models[0].provider == "auto"


@pytest.mark.parametrize(
    "change",
    [{"providr": "cpu"}, {"provider": "gpu"}, {"threads": 0}, {"name": "../x"}, {"name": ""},
     {"name": "a b"}, {"name": "a" * 129}, {"name": "é"}, {"admission": {"max_queue": 0}},
     {"replicas": 0}, {"inline": True, "replicas": 2}, {"batching": {"max_size": 0}},
     {"batching": {"max_delay_ms": float("inf")}}, {"load_seconds": float("nan")},
     {"source": "s3://org/name"}, {"source": ""}, {"aliases": ["../x"]}],
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


@pytest.mark.parametrize(
    "change",
    [{"port": 65536}, {"port": -1}, {"fronts": 0}, {"admin_port": 70000}, {"host": ""},
     {"host": "http://0.0.0.0"}, {"host": "a b"}, {"drain_seconds": -1}, {"grpc_port": 8001},
     {"drain_seconds": 1e308}, {"port": 9000, "admin_port": 9000}, {"grpcport": None}],
)  # fmt: skip
def test_a_server_that_cannot_be_meant_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ServerConfig(**change)


def test_two_free_ports_are_no_collision() -> None:
    assert ServerConfig(port=0, admin_port=0).admin_port == 0


def test_no_limit_overflows_when_it_is_counted_in_bytes() -> None:
    with pytest.raises(ValidationError):
        LimitsConfig(max_body_mb=1e308)
    assert LimitsConfig(max_body_mb=2**20).max_body_bytes == 2**40


def test_versions_of_one_model_share_its_name_and_nothing_else_does() -> None:
    one = MODEL | {"source": "artifacts/minilm/1", "aliases": ["stable"]}
    two = MODEL | {"source": "artifacts/minilm/2"}
    assert len(GatewayConfig(models=[one, two]).models) == 2
    for other in ({"aliases": ["minilm"]}, {"aliases": ["stable"]}, {"aliases": ["a", "a"]}):
        with pytest.raises(ValidationError, match="alias"):
            GatewayConfig(models=[one, two | other])
    with pytest.raises(ValidationError, match=r"'stable' of models\[0\] is also the name of"):
        GatewayConfig(models=[one, two | {"name": "stable"}])


@pytest.mark.parametrize("version", [2, True, "1", 1.0, None])
def test_only_version_1_of_the_format_is_read(version: Any) -> None:
    with pytest.raises(ValidationError, match="version"):
        ConfigFile(version=version, models=[MODEL])


@pytest.mark.parametrize(
    ("host", "inside"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("localhost", True), ("::1", True), ("[::1]", True),
     ("0.0.0.0", False), ("::", False), ("", False), ("example.com", False),
     ("localhost.example.com", False), ("10.0.0.1", False)],
)  # fmt: skip
def test_h10_only_this_machine_is_loopback(host: str, inside: bool) -> None:
    assert is_loopback(host) is inside
