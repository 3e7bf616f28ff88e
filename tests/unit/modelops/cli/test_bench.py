"""``modelops bench``: which kind of model, which options belong to it, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from text_bench_results import measured, result
from typer.testing import CliRunner

from modelops.api import text_bench as api
from modelops.cli import bench as command
from modelops.cli.main import usage_error
from modelops.errors import MissingEnvironmentError, UsageError
from modelops.text_benchmark import TextBenchRequest, TextBenchResult, TextBenchRow

_APP = typer.Typer()
_APP.command()(command.bench)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[TextBenchRequest]:
    requests: list[TextBenchRequest] = []

    def bench(request: TextBenchRequest, _progress: Any) -> TextBenchResult:
        requests.append(request)
        broken = TextBenchRow(kv_cache_dtype="fp8", state="failed", why="it ended")
        return result(measured("auto"), *([broken] if "fp8" in request.kv_cache_dtypes else []))

    monkeypatch.setattr(api, "bench_text", bench)
    return requests


@pytest.fixture
def language_model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text("{}")
    return str(tmp_path)


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(_APP, arguments)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise usage_error(done.exception)
    return done


def test_a_language_model_is_known_by_itself(
    asked: list[TextBenchRequest], language_model: str
) -> None:
    done = run(language_model, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["kind"] == "text-bench"
    assert asked[0].kv_cache_dtypes == ("auto",)
    assert asked[0].measured_requests == 32


def test_every_option_arrives(asked: list[TextBenchRequest], language_model: str) -> None:
    run(
        language_model, "--engine", "vllm", "--kv-cache-dtype", "bf16, int8", "--concurrency", "4",
        "--requests", "9", "--input-tokens", "64", "--output-tokens", "16", "--kv-cache-gib", "2",
        "--tensor-parallel-size", "2", "--enforce-eager", "--engine-arg=--block-size",
        "--engine-arg=32", "-o", "there",
    )  # fmt: skip
    (request,) = asked
    assert request.kv_cache_dtypes == ("bf16", "int8")
    assert (request.concurrency, request.crowd, request.measured_requests) == (4, 8, 9)
    assert (request.input_tokens, request.output_tokens, request.kv_cache_gib) == (64, 16, 2)
    assert request.options.tensor_parallel_size == 2
    assert request.options.enforce_eager
    assert request.options.engine_args == ("--block-size", "32")
    assert request.output == Path("there")
    told = api._command(request)
    run(*told.split()[2:])
    assert asked[1] == request.model_copy(update={"output": None})


def test_an_engine_that_failed_is_exit_1_after_the_table(
    asked: list[TextBenchRequest], language_model: str
) -> None:
    done = run(language_model, "--kv-cache-dtype", "auto,fp8")
    assert done.exit_code == 1
    assert "auto measured; fp8 failed" in done.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--batch", "8"], "--batch means nothing there"),
        (["--source", "x", "--seconds", "1"], "--source, --seconds mean"),
        (["--kv-cache-dtype", "int7"], "kv_cache_dtypes"),
        (["--kv-cache-dtype", "int8,int8"], "named twice"),
        (["--requests", "3"], "requests is 3"),
        (["--engine", "onnxruntime"], "engine"),
        (["--engine-arg=--kv-cache-dtype=fp8"], "kv_cache_dtype"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    asked: list[TextBenchRequest], language_model: str, options: list[str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        run(language_model, *options)
    assert said in caught.value.message
    assert not asked


def test_one_language_model_at_a_time(asked: list[TextBenchRequest], language_model: str) -> None:
    with pytest.raises(UsageError, match="one language model"):
        run(language_model, language_model)


def test_what_vllm_cannot_be_found_for_is_exit_5(
    monkeypatch: pytest.MonkeyPatch, language_model: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(tmp_path / "none"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingEnvironmentError, match="not installed"):
        run(language_model)
    assert not (tmp_path / "reports").exists()
