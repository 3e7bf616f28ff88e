"""``modelops serve``: what the flags ask for, and what is said; the gateway itself is elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from fake_artifacts import make_artifact
from typer.testing import CliRunner

from modelops import registry
from modelops.cli.serve import serve
from modelops.config import GatewayConfig, LimitsConfig, ModelEntry, ServerConfig
from modelops.errors import UsageError

_APP = typer.Typer()
_APP.command()(serve)

MODEL = {
    "name": "mlp", "version": "1", "task": "tensor", "engine": "onnxruntime", "provider": "cpu",
    "threads": 2, "precision": "float32", "provider_note": "asked for", "inline": False,
    "ready": True, "why": "", "replicas": 1,
}  # fmt: skip
READY = SimpleNamespace(url="http://127.0.0.1:9", admin_url=None, curl="curl it", models=(MODEL,))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_artifact(tmp_path / "artifacts" / "mlp")
    monkeypatch.chdir(tmp_path)
    for name in ("MODELOPS_PORT", "MODELOPS_API_KEYS", "MODELOPS_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[GatewayConfig]:
    """Return the configs that the gateway, which is not started here, was given."""
    given: list[GatewayConfig] = []

    def load(target: str, *, extra: str) -> Any:
        assert (target, extra) == ("modelops_servers.serve:serve", "serve")

        def gateway(config: GatewayConfig, progress: Any, on_ready: Any) -> None:
            given.append(config)
            on_ready(READY)

        return gateway

    monkeypatch.setattr(registry, "load", load)
    return given


def run(*arguments: str, **environment: str) -> str:
    env = {"COLUMNS": "160", **environment}
    result = CliRunner(env=env).invoke(_APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_without_flags_all_is_as_the_settings_have_it(served: list[GatewayConfig]) -> None:
    run("artifacts/mlp")
    (config,) = served
    assert (config.server, config.limits) == (ServerConfig(), LimitsConfig())
    (model,) = config.models
    plain = ModelEntry(name="mlp", source=model.source, engine="onnxruntime", required=True)
    assert {n: getattr(model, n) for n in ModelEntry.model_fields} == dict(plain)


def test_the_defaults_that_help_shows_are_those_of_the_settings() -> None:
    command = typer.main.get_command(_APP)
    shown = {p.name: p.default for p in command.params}
    entry = ModelEntry(name="m", source="s")
    settings = {**dict(ServerConfig()), **dict(LimitsConfig()), **dict(entry)}
    settings |= {"max_batch": entry.batching.max_size, "max_queue": entry.admission.max_queue}
    settings |= {"max_delay_ms": entry.batching.max_delay_ms}
    both = shown.keys() & settings.keys() - {"name"}
    assert len(both) >= 15
    assert {n: shown[n] for n in both} == {n: settings[n] for n in both}


def test_every_flag_reaches_the_gateway(served: list[GatewayConfig]) -> None:
    run(
        *("artifacts/mlp", "--name", "a", "--engine", "onnxruntime", "--provider", "cpu"),
        *("--threads", "3", "--replicas", "2", "--max-batch", "4", "--max-delay-ms", "1.5"),
        *("--max-queue", "9", "--host", "localhost", "--port", "81", "--fronts", "2"),
        *("--admin-port", "82", "--api-key", "long-enough-1", "--api-key", "long-enough-2"),
        *("--max-body-mb", "5", "--max-json-mb", "4", "--request-seconds", "3"),
        *("--drain-seconds", "2"),
    )
    (config,) = served
    server, limits, (model,) = config.server, config.limits, config.models
    assert (server.host, server.port, server.fronts, server.admin_port) == ("localhost", 81, 2, 82)
    assert [k.get_secret_value() for k in server.api_keys] == ["long-enough-1", "long-enough-2"]
    assert server.drain_seconds == 2
    assert (limits.max_body_mb, limits.max_json_mb, limits.request_seconds) == (5, 4, 3)
    assert (model.name, model.engine, model.provider) == ("a", "onnxruntime", "cpu")
    assert (model.threads, model.replicas, model.inline) == (3, 2, False)
    assert (model.batching.max_size, model.batching.max_delay_ms) == (4, 1.5)
    assert model.admission.max_queue == 9
    run("artifacts/mlp", "--inline")
    assert served[1].models[0].inline


def test_a_flag_typed_with_its_default_still_wins(served: list[GatewayConfig]) -> None:
    Path("c.yaml").write_text(
        "version: 1\nserver: {port: 9000}\nmodels: [{name: m, source: artifacts/mlp}]\n"
    )
    run("--config", "c.yaml")
    run("--config", "c.yaml", "--port", "8080")
    run("--config", "c.yaml", MODELOPS_PORT="7000")
    run("--config", "c.yaml", "--port", "8080", MODELOPS_PORT="7000")
    assert [c.server.port for c in served] == [9000, 8080, 7000, 8080]
    with pytest.raises(UsageError, match="SOURCE, --inline cannot"):
        run("artifacts/mlp", "--config", "c.yaml", "--inline")


def test_ready_is_told_with_how_each_model_runs(
    served: list[GatewayConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run("artifacts/mlp").splitlines()
    assert shown[0] == "ready at http://127.0.0.1:9"
    told = "  mlp version 1 (tensor) by onnxruntime on cpu, 2 threads, float32"
    assert shown[1] == f"{told}; asked for"
    assert "  curl it" in shown
    assert not [line for line in shown if "admin" in line]
    monkeypatch.setattr(READY, "admin_url", "http://127.0.0.1:10")
    monkeypatch.setattr(READY, "models", (MODEL | {"inline": True}, MODEL | {"replicas": 3}))
    shown = run("artifacts/mlp").splitlines()
    assert shown[1:3] == [f"{told}, inline; asked for", f"{told}, 3 replicas; asked for"]
    assert "  admin http://127.0.0.1:10" in shown
    event = json.loads(run("artifacts/mlp", "--json"))
    assert event["event"] == "ready"
    assert event["admin_url"] == "http://127.0.0.1:10"
    assert event["models"][1]["replicas"] == 3


def test_a_dry_run_shows_the_whole_plan_and_starts_nothing(served: list[GatewayConfig]) -> None:
    Path("c.yaml").write_text(
        "version: 1\nserver: {fronts: 2}\nmodels:\n"
        "  - {name: m, aliases: [x, y], source: artifacts/mlp, inline: true}\n"
        "  - {name: '8', source: artifacts/mlp, replicas: 2, threads: 1, required: true}\n"
    )
    keys = {"MODELOPS_API_KEYS": "long-enough-1,long-enough-2"}
    shown = run("--config", "c.yaml", "--dry-run", "--admin-port", "0", **keys)
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "would listen on 127.0.0.1:8080, 2 API keys"
    assert "admin 127.0.0.1:0" in lines
    assert "m 1 x, y artifacts/mlp/1 onnxruntime auto no" in lines
    assert "8 1 – artifacts/mlp/1 onnxruntime auto yes" in lines
    assert "m 1 inline in 2 fronts up to 32, 2 ms 64 256, 5 s" in lines
    assert "8 1 2 processes, 1 threads up to 32, 2 ms 64 256, 5 s" in lines
    plan = json.loads(run("--config", "c.yaml", "--dry-run", "--json", **keys))
    assert (plan["event"], plan["api_keys"], plan["fronts"]) == ("plan", 2, 2)
    assert plan["models"][0]["aliases"] == ["x", "y"]
    assert "long-enough" not in shown + json.dumps(plan)
    assert served == []
