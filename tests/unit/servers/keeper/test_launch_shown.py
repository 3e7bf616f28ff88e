"""``modelops serve --dry-run`` shows how an engine of several workers would be started."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_llm
import typer
from typer.testing import CliRunner

from modelops.cli.serve import serve
from modelops.config import ModelConfig
from modelops.environments import EngineEnvironment
from modelops.errors import InputError, MissingEnvironmentError, UsageError
from modelops_servers.keeper.seat import Vllm

MakeEnvironment = Callable[..., EngineEnvironment]
FOUR_BY_RAY = ("--tensor-parallel-size", "4", "--distributed-executor-backend", "ray")

_APP = typer.Typer()
_APP.command()(serve)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of four attention heads."""
    return tiny_llm.folder(tmp_path_factory.mktemp("models") / "tiny", tiny_llm.model())


@pytest.fixture
def on_gpus(
    environment: MakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., EngineEnvironment]:
    """Let vLLM's environment be one for GPUs; its Python is the tests', which has no Ray."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("TMPDIR", "/scratch")

    def use(platform: str = "cuda", **fields: Any) -> EngineEnvironment:
        made = environment(platform, python=Path(sys.executable), **fields)
        monkeypatch.setattr("modelops.environments.find_environment", lambda _engine: made)
        return made

    use()
    return use


def shown(model: Path, *flags: str) -> str:
    arguments = [str(model), "--engine", "vllm", "--dry-run", *flags]
    result = CliRunner(env={"COLUMNS": "400"}).invoke(_APP, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_launch_for_ray_is_whole_and_says_which_cluster(
    model: Path, on_gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(model, *FOUR_BY_RAY, "--pipeline-parallel-size", "2", "--speculative", "ngram")
    lines = [line.strip() for line in text[text.index("tiny is started by:") :].splitlines()]
    assert lines[0] == "tiny is started by:"
    assert "RAY_TMPDIR=/scratch \\" in lines
    (command,) = (line for line in lines if "vllm.entrypoints" in line)
    assert command == (
        f"{sys.executable} -m vllm.entrypoints.openai.api_server --model {model} "
        "--served-model-name tiny --uds engine.sock --enable-server-load-tracking "
        "--disable-uvicorn-access-log --tensor-parallel-size 4 --pipeline-parallel-size 2 "
        "--distributed-executor-backend ray --speculative-config "
        '\'{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, '
        '"prompt_lookup_min": 2}\''
    )
    notes = [line for line in lines if line.startswith("note: ")]
    assert "it cannot start here: Ray is to start the workers, and" in notes[0]
    assert "cannot import ray" in notes[0]
    assert "Ray starts the 8 workers in this machine's cluster" in notes[1]
    assert "ray start --head --port 6379" in notes[1]

    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    plan = json.loads(shown(model, *FOUR_BY_RAY, "--json"))["models"][0]
    assert plan["variables"]["RAY_ADDRESS"] == "head:6379"
    assert plan["command"][:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert "Ray starts the 4 workers in the cluster at head:6379" in plan["notes"][1]


def by_ray(model: Path, **options: Any) -> ModelConfig:
    asked = {"distributed_executor_backend": "ray", **options}
    return ModelConfig(name="tiny", source=model, engine="vllm", options=asked)


def test_what_is_only_noted_in_a_dry_run_is_refused_before_a_start(
    model: Path, on_gpus: Any
) -> None:
    with pytest.raises(MissingEnvironmentError, match="cannot import ray"):
        Vllm.check(by_ray(model))
    on_gpus("cpu")
    with pytest.raises(MissingEnvironmentError, match="by Ray on GPUs alone"):
        Vllm.check(by_ray(model))
    assert "by Ray on GPUs alone" in Vllm.preview(by_ray(model), Path("e.sock")).notes[0]


def test_what_no_machine_can_do_is_refused_in_a_dry_run_too(model: Path, on_gpus: Any) -> None:
    with pytest.raises(InputError, match="4 attention heads cannot be divided among 3"):
        shown(model, "--tensor-parallel-size", "3")


def test_an_engine_sees_what_is_shown(model: Path, on_gpus: Any) -> None:
    on_gpus("cpu")
    two = ModelConfig(
        name="tiny", source=model, engine="vllm", options={"pipeline_parallel_size": 2}
    )
    how = Vllm.preview(two, Path("e.sock"))
    assert {k: how.environment[k] for k in how.told} == dict(how.told)
    assert "VLLM_CPU_OMP_THREADS_BIND" in how.told
    assert "RAY_TMPDIR" not in how.environment


def speculative(model: Path, value: str) -> Any:
    plan = json.loads(shown(model, "--speculative", value, "--json"))
    return plan["models"][0]["options"]["speculative"]


def test_speculation_is_asked_for_by_its_name_or_as_vllm_has_it(model: Path, on_gpus: Any) -> None:
    usual = {"method": "ngram", "tokens": 4, "lookup_max": 4, "lookup_min": 2}
    assert speculative(model, "ngram") == usual
    assert speculative(model, '{"tokens": 7}') == {**usual, "tokens": 7}
    theirs = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 3}'
    assert speculative(model, theirs) == {**usual, "tokens": 5, "lookup_max": 3}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("eagle", "--speculative: method: should be 'ngram'"),
        ('{"tokens": 0}', "--speculative: tokens: should be greater"),
        ('{"model": "x"}', "--speculative: model: Extra inputs"),
        ("{ngram", "--speculative: '{ngram' is no JSON"),
    ],
)
def test_a_speculation_that_cannot_be_meant_is_refused(
    model: Path, on_gpus: Any, value: str, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        speculative(model, value)
    assert caught.value.message.startswith(said)


@pytest.mark.parametrize("spoilt", ["config.json", "model.safetensors"])
def test_what_serve_would_refuse_of_a_folder_is_refused(
    model: Path, on_gpus: Any, tmp_path: Path, spoilt: str
) -> None:
    folder = shutil.copytree(model, tmp_path / "tiny")
    if spoilt == "config.json":
        said = json.loads((folder / spoilt).read_text())
        (folder / spoilt).write_text(json.dumps({**said, "auto_map": {"AutoModel": "m.Evil"}}))
    else:
        (folder / spoilt).unlink()
    with pytest.raises(InputError, match=r"asks for code|no weights"):
        shown(folder)
