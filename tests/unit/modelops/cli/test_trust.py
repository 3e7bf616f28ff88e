"""``modelops trust``: what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from fake_artifacts import make_artifact
from typer.testing import CliRunner

from modelops.artifact import Artifact, is_trusted
from modelops.cli.trust import trust
from modelops.errors import UsageError

_APP = typer.Typer()
_APP.command()(trust)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(_APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def code(tmp_path: Path) -> Artifact:
    return make_artifact(
        tmp_path / "net",
        name="[bold]net",
        format="torch-export",
        entry="m.pt2",
        files={"m.pt2": b"code"},
    )


def test_adding_shows_what_is_trusted(code: Artifact) -> None:
    shown = run(str(code.path))
    for part in ("trusted: [bold]net", code.manifest.digest, "torch-export", "(safetensors)"):
        assert part in shown
    assert is_trusted(code.manifest.digest)
    assert "already trusted" in run(str(code.path))


def test_listing_and_removing(code: Artifact) -> None:
    assert "nothing is trusted" in run("--list")
    told = json.loads(run(str(code.path), "--json"))
    assert told["digest"] == code.manifest.digest
    assert code.manifest.digest in run("--list")
    (entry,) = json.loads(run("--list", "--json"))["trusted"]
    assert (entry["digest"], entry["how"]) == (code.manifest.digest, "decision")
    assert "no longer trusted" in run("--remove", str(code.path))
    assert json.loads(run("--list", "--json")) == {"trusted": []}


def test_data_is_said_not_to_need_it(tmp_path: Path) -> None:
    assert "did not need this" in run(str(make_artifact(tmp_path / "mlp").path))


@pytest.mark.parametrize("arguments", [(), ("--list", "--remove", "x"), (".", "--list")])
def test_one_thing_at_a_time(arguments: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="--list, or --remove"):
        run(*arguments)
