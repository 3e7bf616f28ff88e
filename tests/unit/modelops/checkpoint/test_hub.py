"""hf://: fetched through huggingface_hub from a small server that speaks the hub's API."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_hf
import torch
from fake_hub import COMMIT, Hub, environment_of, running_hub
from safetensors.torch import load_file


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    folder = tmp_path / "repository"
    folder.mkdir()
    tiny_hf.save(folder, "BertModel", tiny_hf.bert_config())
    (folder / "modeling_tiny.py").write_text("raise SystemExit('ran')")
    for name in ("optimizer.pt", "training_args.bin", "pytorch_model.bin"):
        torch.save({"w": torch.ones(1)}, folder / name)
    with running_hub(folder) as server:
        yield server


def inspect(source: str, hub_url: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """Open ``source`` in a process of its own: the library reads its settings once."""
    code = (
        "import json, sys\n"
        "from modelops.checkpoint import open_checkpoint\n"
        "from modelops.errors import ModelopsError\n"
        "try:\n"
        "    c = open_checkpoint(sys.argv[1])\n"
        "except ModelopsError as e:\n"
        "    print(type(e).__name__, e); sys.exit(e.exit_code)\n"
        "print(json.dumps([c.name, c.format, c.revision, sorted(c.tensors())[:1]]))\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, source],
        env=environment_of(hub_url, cache),
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", ["hf://org/tiny@v1.0", "org/tiny"])
def test_the_revision_resolved_is_recorded_and_code_stays_there(
    hub: Hub, tmp_path: Path, source: str
) -> None:
    done = inspect(source, hub.url, tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    name, form, revision, tensors = json.loads(done.stdout)
    assert (name, form, revision) == ("tiny", "huggingface", COMMIT)
    assert tensors
    assert "model.safetensors" in hub.fetched
    assert not {n for n in hub.fetched if n.endswith((".py", ".pt", ".bin"))}
    kept = {p.name for p in (tmp_path / "cache").rglob("*")}
    assert not {n for n in kept if n.endswith((".py", "optimizer.pt"))}


@pytest.mark.parametrize(
    ("source", "code", "message"),
    [
        ("hf://org/nothing", 3, "has no model 'org/nothing'"),
        ("hf://org/tiny@v9", 3, "has no revision 'v9'"),
        ("hf://../etc", 2, "as a hub id"),
    ],
)
def test_what_the_hub_does_not_have(
    hub: Hub, tmp_path: Path, source: str, code: int, message: str
) -> None:
    done = inspect(source, hub.url, tmp_path / "cache")
    assert done.returncode == code, done.stdout + done.stderr
    assert message in done.stdout


def test_a_hub_that_names_files_outside_its_folder_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.claimed = ["../../../../planted.model"]
    done = inspect("org/tiny", hub.url, tmp_path / "cache")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "planted.model" in done.stdout
    assert hub.fetched == []


@pytest.mark.slow
def test_pickled_weights_are_fetched_where_there_are_no_others(hub: Hub, tmp_path: Path) -> None:
    weights = load_file(hub.folder / "model.safetensors")
    (hub.folder / "model.safetensors").rename(hub.folder / "adapter_model.safetensors")
    torch.save(weights, hub.folder / "pytorch_model.bin")
    done = inspect("hf://org/tiny", hub.url, tmp_path / "cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "pytorch_model.bin" in hub.fetched
    assert not {n for n in hub.fetched if n.endswith((".py", ".pt", "training_args.bin"))}


def test_a_hub_that_is_down_is_the_environments_fault(tmp_path: Path) -> None:
    done = inspect("hf://org/tiny", "http://127.0.0.1:9", tmp_path / "cache")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "cannot fetch org/tiny" in done.stdout
