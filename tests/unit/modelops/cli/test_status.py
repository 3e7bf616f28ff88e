"""``modelops status``: what it prints and how it exits."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from modelops.api import status as api
from modelops.api.status import GatewayStatus
from modelops.cli import status as command
from modelops.cli.status import ago
from modelops.errors import MissingEnvironmentError, UsageError

_APP = typer.Typer()
_APP.command()(command.status)
NOW = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)


def gateway(ready: bool, *models: dict[str, Any], fronts: Any = ()) -> GatewayStatus:
    return GatewayStatus(url="http://h:1", ready=ready, now=NOW, models=models, fronts=fronts)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of what the gateway answers next; an exception is raised."""
    queue: list[Any] = []

    def status(url: str, key: Any) -> GatewayStatus:
        assert (url, key) == ("http://h:1", None)
        answer = queue.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(api, "status", status)
    monkeypatch.delenv("MODELOPS_API_KEY", raising=False)
    return queue


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "160"}).invoke(_APP, ["h:1", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


MODELS = (
    {"name": "minilm", "version": "2", "state": "ready", "why": "warm", "next": "nothing to do",
     "since": NOW - timedelta(minutes=3, seconds=20)},
    {"name": "\x1b[31m[bold]x", "version": None, "state": "failed", "why": "line one\nline two",
     "since": None, "next": "restart in 4 s",
     "replicas": [{"id": "0", "state": "ready", "since": NOW - timedelta(days=2)},
                  {"id": "1", "state": "failed", "why": "killed", "restarts": 5}]},
)  # fmt: skip


def test_a_table_says_which_why_since_when_and_what_next(answers: list[Any]) -> None:
    answers.append(gateway(False, *MODELS))
    code, shown = run()
    assert code == 5
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "http://h:1 is not ready"
    assert lines[2] == "model version state why since next"
    assert lines[3] == "minilm 2 ready warm 3 min ago nothing to do"
    assert lines[4].startswith(r"\x1b[31m[bold]x – failed line one – restart in 4 s")
    assert "0 ready 2 days ago" in lines
    assert "1 failed killed – 5 restarts" in lines
    assert "\x1b" not in shown


def test_ready_exits_0_and_json_is_one_document(answers: list[Any]) -> None:
    answers += [gateway(True, MODELS[0]), gateway(True, MODELS[0])]
    code, shown = run()
    assert (code, shown.splitlines()[0]) == (0, "http://h:1 is ready")
    code, shown = run("--json")
    assert code == 0
    assert json.loads(shown)["models"][0]["name"] == "minilm"


def test_unreachable_is_an_error_with_exit_5(answers: list[Any]) -> None:
    answers.append(MissingEnvironmentError("nothing listens there"))
    with pytest.raises(MissingEnvironmentError):
        run()


def test_a_url_that_is_none_is_a_usage_error(answers: list[Any]) -> None:
    result = CliRunner().invoke(_APP, ["ftp://x"])
    assert isinstance(result.exception, UsageError)


def test_watching_goes_on_while_the_gateway_is_away_and_ends_when_interrupted(
    answers: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "WATCH_SECONDS", 0)
    away = MissingEnvironmentError("nothing listens there")
    answers += [gateway(False, *MODELS), away, gateway(True, MODELS[0]), KeyboardInterrupt()]
    result = CliRunner().invoke(_APP, ["h:1", "--watch", "--json"])
    assert result.exit_code == 130
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [t["ready"] for t in told] == [False, False, True]
    assert told[1]["error"] == "nothing listens there"


@pytest.mark.parametrize(
    ("past", "said"),
    [(-5, "just now"), (0, "just now"), (0.9, "just now"), (1, "1 s ago"), (59.9, "59 s ago"),
     (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"), (86_399, "23 h ago"),
     (86_400, "1 day ago"), (200_000, "2 days ago")],
)  # fmt: skip
def test_an_age_is_told_in_its_largest_unit(past: float, said: str) -> None:
    assert ago(NOW - timedelta(seconds=past), NOW) == said
    assert ago((NOW - timedelta(seconds=past)).replace(tzinfo=None), NOW) == said
    assert ago(None, NOW) == "–"


def test_a_front_is_shown_where_it_is_or_was_amiss(answers: list[Any]) -> None:
    fronts = (
        {"index": 0, "state": "ready", "why": "serving", "next": "nothing to do"},
        {"index": 1, "state": "stuck", "why": "no sign of life for 4 s", "next": "it is killed"},
        {"index": 2, "state": "ready", "why": "serving", "restarts": 3},
    )
    answers.append(gateway(True, MODELS[0], fronts=fronts))
    code, said = run()
    assert code == 0
    assert "front 0" not in said
    [stuck] = [line for line in said.splitlines() if "front 1" in line]
    assert "no sign of life for 4 s" in stuck
    assert "it is killed" in stuck
    [again] = [line for line in said.splitlines() if "front 2" in line]
    assert "3 restarts" in again
