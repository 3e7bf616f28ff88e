"""The load test against the real gateway, over small real models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact
from running_server import Server, start
from server_zoo import echo, tiny_embedder

from modelops.errors import UsageError
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.runner import run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("artifacts")
    mlp = make_artifact(root / "mlp").path
    every = echo(root / "echo", "echo", ["bool", "uint8", "int64", "float16", "bfloat16"])
    server = start(*(str(path) for path in (mlp, every, tiny_embedder(root / "embedder"))))
    yield server
    server.close()


def measure(gateway: Server, folder: Path, **options: Any) -> dict[str, Any]:
    base = {"url": gateway.url, "users": 2, "duration_s": 0.5, "warmup_s": 0.2}
    return run({**base, "slo": ("error_rate=0",), "output": folder, **options})


@pytest.mark.parametrize(
    ("model", "encoding", "dims"),
    [
        ("mlp", "json", {"batch": 64}),
        ("mlp", "binary", {}),
        # Its vocabulary has ten words, and its longest sequence is sixteen tokens.
        ("embedder", "json", {"sequence": 16, "batch": 4}),
        ("embedder", "binary", {}),
        ("echo", "binary", {"n": 3}),
    ],
)
def test_tensors_fit_what_the_gateway_says_of_its_models(
    gateway: Server, tmp_path: Path, model: str, encoding: str, dims: dict[str, int]
) -> None:
    result = measure(
        gateway, tmp_path, scenario="tensors", model=model, encoding=encoding, dims=dims
    )
    assert result["errors"] == []
    assert [gate["verdict"] for gate in result["gates"]] == ["PASS"]
    assert result["summary"]["ok"] > 10
    assert result["summary"]["items_per_s"] == result["summary"]["qps"] * dims.get("batch", 1)


def test_a_size_outside_the_gateways_range_is_refused_before_the_run(
    gateway: Server, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"batch=65 is outside 1\.\.64"):
        measure(gateway, tmp_path, scenario="tensors", model="mlp", dims={"batch": 65})


def test_what_json_cannot_carry_is_refused_before_the_run(gateway: Server, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="FP16") as caught:
        measure(gateway, tmp_path, scenario="tensors", model="echo")
    assert "--encoding binary" in str(caught.value.hint)


@pytest.mark.parametrize("encoding", ["json", "binary"])
def test_embeddings(gateway: Server, tmp_path: Path, encoding: str) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("the cat sat on a mat\nthe mat\n")
    result = measure(
        gateway,
        tmp_path / "report",
        scenario="embeddings",
        model="embedder",
        encoding=encoding,
        data=texts,
        batch=3,
    )
    assert result["errors"] == []
    assert [gate["verdict"] for gate in result["gates"]] == ["PASS"]
    assert result["summary"]["input_tokens_per_s"] > result["summary"]["items_per_s"]


def test_chat_and_embeddings_together_through_the_gateway(tmp_path: Path) -> None:
    """What the gateway passes on from an OpenAI server, beside what it serves itself."""
    embedder = tiny_embedder(tmp_path / "embedder")
    config, texts = tmp_path / "modelops.yaml", tmp_path / "texts.txt"
    texts.write_text("the cat sat on a mat\nthe mat\n")
    with MockServer(Script(ttft_ms=20, interval_ms=10)) as mock:
        config.write_text(
            f"version: 1\nmodels:\n  - {{name: mock, engine: openai, url: '{mock.url}/v1'}}\n"
            f"  - {{name: embedder, source: '{embedder}'}}\n"
        )
        server = start("--config", str(config))
        try:
            result = measure(
                server,
                tmp_path / "report",
                scenario="chat=2,embeddings=1",
                model=("chat=mock", "embeddings=embedder"),
                users=None,
                rate=20.0,
                processes=2,
                duration_s=1.5,
                output_tokens=5,
                data=texts,
                seed=1,
            )
        finally:
            server.close()
    assert result["errors"] == []
    figures = result["summary"]
    assert 5 <= figures["ttft_ms"]["count"] < figures["ok"] == figures["e2e_ms"]["count"]
    assert figures["ttft_ms"]["p50"] >= 20
    assert figures["itl_ms"]["p50"] == pytest.approx(10, abs=5)
    # Its own metrics were looked at meanwhile, and are on the run's time axis.
    shown = {row["source"] for row in result["server_metrics"]["series"]}
    assert "modelops_inflight_requests" in shown, result["server_metrics"]
