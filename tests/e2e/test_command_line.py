"""The command line as a person and a pipeline meet it: help, exit codes, one JSON document."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from model_zoo import Frames

GOLDEN = Path(__file__).parents[1] / "golden" / "help"
COMMANDS = [
    "init", "export", "inspect", "verify", "bench", "serve", "status", "config check",
    "config schema", "loadtest", "compare", "engine install", "engine list", "engine remove",
    "trust", "doctor",
]  # fmt: skip


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "modelops", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_the_golden_one_and_has_examples(command: str) -> None:
    """Run with MODELOPS_UPDATE_GOLDEN=1 to accept a change."""
    done = run(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout
    shown = "\n".join(line.rstrip() for line in done.stdout.strip().splitlines()) + "\n"
    golden = GOLDEN / f"{command.replace(' ', '-')}.txt"
    if os.environ.get("MODELOPS_UPDATE_GOLDEN") == "1":
        golden.write_text(shown, encoding="utf-8")
    assert shown == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nonsense"], 2),
        (["export"], 2),
        (["export", "x.pt", "--to", "tensorrt-lite"], 2),
        (["export", "nowhere.pt", "--model", "m:M", "--input", "x=float32[batch]"], 3),
        (["export", "nowhere.pt", "--input", "x=float33[batch]"], 2),
        (["export", "nowhere.pt", "--dim", "batch=9..2"], 2),
        (["export", "nowhere.pt", "--opset", "26"], 2),
        (["export", "nowhere.pt", "--dim", "batch=0"], 2),
        (["export", "nowhere.pt", "--dim", "batch=99999999999999999999"], 2),
        (["export", "nowhere.pt", "--input", "x=float32[batch,99999999999]"], 2),
        (["export", "nowhere.pt", "--input", "x=float32[0,4]"], 2),
        (["export", "nowhere.pt", "--seed", "-1"], 2),
        (["export", "nowhere.pt", "--name", "../x"], 2),
        (["inspect", "nowhere"], 3),
        (["verify", "nowhere"], 3),
        (["bench", "nowhere"], 3),
        (["serve", "nowhere"], 3),
        (["serve", "nowhere", "--port", "70000"], 2),
        (["serve", "nowhere", "--config", "none.yaml"], 2),
        (["serve", "--config", "none.yaml"], 3),
        (["config", "check", "none.yaml"], 3),
        (["config", "nonsense"], 2),
        (["status", "http://127.0.0.1:9"], 5),
        (["status", "ftp://x"], 2),
        (["trust"], 2),
        (["engine", "install", "nonsense"], 2),
        (["engine", "install", "vllm", "--build", "nonsense"], 2),
        (["engine", "install", "vllm", "--python", "nowhere", "--engines-dir", "/dev/null"], 5),
        (["engine", "remove", "vllm", "--engines-dir", "/dev/null"], 3),
        (["loadtest", "http://127.0.0.1:9", "--scenario", "embeddings"], 7),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_exit_codes_with_one_json_document_and_no_traceback(
    arguments: list[str], code: int, tmp_path: Path
) -> None:
    done = run(*arguments, "--json", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)["error"]
    assert found["exit_code"] == code
    assert found["message"]
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_c1_code_in_a_checkpoint_is_exit_3_and_does_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (os.system, (f"touch {tmp_path}/marker",))

    torch.save({"a": torch.ones(2), "b": Evil()}, tmp_path / "evil.pt")
    options = ["--model", "model_zoo:Frames", "--input", "x=float32[batch,frames,6]"]
    done = run("export", "evil.pt", *options, cwd=tmp_path)
    assert done.returncode == 3
    assert "system" in done.stderr
    assert not (tmp_path / "marker").exists()
    seen = run("inspect", "evil.pt", "--json", cwd=tmp_path)
    assert seen.returncode == 0
    assert "system" in seen.stdout
    assert not (tmp_path / "marker").exists()


@pytest.mark.slow
def test_an_export_from_weights_to_verified_in_two_commands(tmp_path: Path) -> None:
    torch.save(Frames().state_dict(), tmp_path / "frames.pt")
    fakes = str(Path(__file__).parents[1] / "fakes")
    (tmp_path / "net.py").write_text(
        f"import sys\nsys.path.append({fakes!r})\nimport model_zoo\n"
        "def make(width=6): return model_zoo.Frames(width)\n"
    )
    options = ["--model", "net:make", "--model-arg", "width=6"]
    options += ["--input", "mels=float32[batch,frames,6]", "--output-name", "embedding"]
    done = run("export", "frames.pt", *options, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["version"] == 1
    assert (tmp_path / result["report"]).is_file()
    verified = run(
        "verify", "artifacts/frames", "--digest", result["digest"], "--json", cwd=tmp_path
    )
    assert json.loads(verified.stdout)["digest"] == result["digest"]
    model = tmp_path / "artifacts" / "frames" / "1" / "model.onnx"
    data = bytearray(model.read_bytes())
    data[len(data) // 2] ^= 1
    model.write_bytes(data)
    broken = run("verify", "artifacts/frames", cwd=tmp_path)
    assert broken.returncode == 4
    assert "model.onnx" in broken.stderr


@pytest.mark.parametrize("command", [["trust", "--list"], ["inspect", "w.pt"]], ids="-".join)
def test_a_stdout_that_fails_is_told_without_a_traceback(
    command: list[str], tmp_path: Path
) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "w.pt")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "modelops", *command, "--json"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 5, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
