"""``modelops config``: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_artifacts import make_artifact
from typer.testing import CliRunner

from modelops.api.config import schema
from modelops.cli.config import app
from modelops.errors import InputError


def run(*arguments: str) -> str:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_check_prints_the_plan_or_the_mistake(tmp_path: Path) -> None:
    make_artifact(tmp_path / "artifacts" / "mlp")
    path = tmp_path / "modelops.yaml"
    path.write_text("version: 1\nmodels: [{name: m, source: artifacts/mlp}]\n")
    assert "would listen on 127.0.0.1:8080, API keys off" in run("check", str(path))
    plan = json.loads(run("check", str(path), "--json"))
    assert plan["models"][0]["source"] == str(tmp_path / "artifacts/mlp/1")
    assert plan["models"][0]["required"] is True
    path.write_text("version: 1\nmodels: [{name: m, source: artifacts/mpl}]\n")
    with pytest.raises(InputError, match=r"line 2: models\[0\] \(m\): there is nothing at"):
        run("check", str(path))


def test_the_schema_is_json_for_a_person_and_a_program() -> None:
    assert json.loads(run("schema")) == json.loads(run("schema", "--json")) == schema()
    assert len(run("schema").splitlines()) > 100
    assert len(run("schema", "--json").splitlines()) == 1
