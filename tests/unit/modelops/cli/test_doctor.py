"""``modelops doctor``: the table, the JSON, the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import modelops.api.doctor as api
from modelops.artifact import trust
from modelops.cli.doctor import doctor
from modelops.doctor import Diagnosis, Finding
from modelops.doctor.examine import _trust
from modelops.doctor.findings import Machine

_APP = typer.Typer()
_APP.command()(doctor)
_MACHINE = Machine(os="Linux", arch="x86_64", python="3.11", cores=2, memory_bytes=1, cpu_flags=())


def _finding(status: str, fix: str | None = None) -> Finding:
    return Finding.model_validate(
        {"area": "extra", "name": "serve", "status": status, "value": "[red]as found", "fix": fix}
    )


def run(monkeypatch: pytest.MonkeyPatch, *findings: Finding, json: bool = False) -> tuple[int, str]:
    diagnosis = Diagnosis(machine=_MACHINE, findings=findings)
    monkeypatch.setattr(api, "examine", lambda _: diagnosis)
    result = CliRunner().invoke(_APP, ["--json"] if json else [], catch_exceptions=False)
    return result.exit_code, result.stdout


def test_what_is_absent_or_doubtful_is_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(
        monkeypatch, _finding("ok"), _finding("absent"), _finding("warning", "mend this")
    )
    assert code == 0
    assert "this machine is ready" in out
    assert "[red]as found" in out
    assert "fix: mend this" in out


def test_what_is_broken_ends_with_5(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(monkeypatch, _finding("broken", "pip install x"))
    assert code == 5
    assert "fix: pip install x" in out


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    code, out = run(monkeypatch, _finding("broken", "pip install x"), json=True)
    told = json.loads(out)
    assert code == 5
    assert told["usable"] is False
    assert told["findings"][0]["fix"] == "pip install x"
    assert told["machine"]["cores"] == 2


def test_the_trust_store_is_looked_at(trust_store: Path) -> None:
    trust("sha256:" + "a" * 64, "a", "export")
    assert _trust().value.startswith("1 digests")
    trust_store.chmod(0o666)
    assert _trust().status == "warning"
    assert "chmod 600" in (_trust().fix or "")


@pytest.mark.slow
def test_this_machine() -> None:
    result = CliRunner().invoke(_APP, ["--json"], catch_exceptions=False)
    told = json.loads(result.stdout)
    assert result.exit_code == (0 if told["usable"] else 5)
    areas = {f["area"] for f in told["findings"]}
    assert {"machine", "accelerator", "disk", "extra", "provider", "trust"} <= areas
