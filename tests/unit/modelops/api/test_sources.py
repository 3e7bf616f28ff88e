"""What is served may be on the hub."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fake_hub import COMMIT, environment_of, running_hub

from modelops.api.sources import local_source
from modelops.progress import silent

_RESOLVE = """
import json, sys
from modelops.api.serve import ServeRequest, resolve
from modelops.errors import ModelopsError
try:
    config = resolve(ServeRequest(**json.loads(sys.argv[1])))
except ModelopsError as error:
    print(error)
    sys.exit(error.exit_code)
[model] = config.models
print(json.dumps([model.name, model.engine, model.source.name, str(model.asked)]))
"""


def resolved(folder: Path, hub: str, **request: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _RESOLVE, json.dumps(request)],
        env=environment_of(hub, folder / "cache"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def test_a_hub_id_is_fetched_and_its_revision_pinned(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "modelops.yaml").write_text(
        "version: 1\nmodels:\n  - {name: chat, source: 'hf://org/tiny@v1.0', engine: vllm}\n"
    )
    with running_hub(repository) as hub:
        for request, name in (
            ({"sources": ["hf://org/tiny@v1.0"]}, "tiny"),
            ({"sources": ["org/tiny"]}, "tiny"),
            ({"config": "modelops.yaml"}, "chat"),
        ):
            done = resolved(tmp_path, hub.url, **request)
            assert done.returncode == 0, done.stdout + done.stderr
            found, engine, revision, asked = json.loads(done.stdout)
            assert (found, engine, revision) == (name, "vllm", COMMIT)
            assert asked.endswith(COMMIT)  # what is loaded again is the same
        done = resolved(tmp_path, hub.url, sources=["hf://org/nothing"])
        assert (done.returncode, "has no model 'org/nothing'" in done.stdout) == (3, True)
        assert "here" not in done.stdout
        done = resolved(tmp_path, hub.url, sources=["artifacts/nothing"])
        assert done.returncode == 3
        assert "no file or folder 'artifacts/nothing' here" in done.stdout
        assert "has no model 'artifacts/nothing'" in done.stdout


def test_a_misspelt_path_is_not_looked_for_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "artifacts").mkdir()
    path = Path("artifacts/nothing")
    assert local_source(path, silent) == (path, None)
    assert local_source(Path("org/tiny"), silent, beside=tmp_path) == (tmp_path / "org/tiny", None)
