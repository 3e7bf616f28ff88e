"""Versions of one model, aliases, and models that cannot be loaded, out of a ``modelops.yaml``."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
import tritonclient.http as triton
from fake_artifacts import make_artifact, mlp_reference
from running_server import Placement, Server, command, start, write_config
from server_zoo import tiny_embedder

VALUES = [0.5, -1.0, 2.0, 3.0]
X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": VALUES}
SEEDS = {"1": 7, "2": 8}
DEADLINE = 60


def damage(version: Path, name: str = "model.onnx") -> Path:
    """Flip the last bit of a published file."""
    data = bytearray((version / name).read_bytes())
    data[-1] ^= 1
    (version / name).write_bytes(data)
    return version


def serve(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a server that is expected to end by itself."""
    return subprocess.run(
        command("--config", str(config), "--port", "0", *arguments),
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("versions")
    for seed in SEEDS.values():
        make_artifact(root / "m", name="m", seed=seed)
    make_artifact(root / "other", name="other")
    damage(make_artifact(root / "broken", name="broken").path)
    damage(tiny_embedder(root / "torn"), "tokenizer.json")
    return root


def entries(artifacts: Path, placement: Placement) -> list[dict[str, Any]]:
    inline = {"inline": placement is Placement.INLINE}
    return [
        {"name": "broken", "source": "broken", "required": False, **inline},
        {"name": "m", "source": "m/1", "aliases": ["oldest"], "required": True, **inline},
        {"name": "m", "source": str(artifacts / "m" / "2"), "aliases": ["m-latest"], **inline},
        {"name": "other", "source": "other", "aliases": ["another.name"], **inline},
        {"name": "torn", "source": "torn", "required": False, **inline},
    ]


@pytest.fixture(scope="module")
def served(artifacts: Path, placement: Placement) -> Iterator[Server]:
    path = artifacts / f"{placement}.yaml"
    running = start("--config", str(write_config(path, entries(artifacts, placement))))
    yield running
    running.close()


def version_of(reply: requests.Response) -> str:
    """Return the version that answered, by its word and by its weights."""
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    weights = [
        version
        for version, seed in SEEDS.items()
        if np.allclose(
            answer["outputs"][0]["data"],
            mlp_reference(np.array([VALUES], np.float32), seed).ravel(),
            rtol=1e-4,
        )
    ]
    assert weights == [answer["model_version"]]
    return weights[0]


def ask(served: Server, name: str, version: str | None = None) -> requests.Response:
    at = "" if version is None else f"/versions/{version}"
    return served.post(f"/v2/models/{name}{at}/infer", json={"inputs": [X]})


def test_the_newest_answers_and_each_can_be_asked_for(served: Server) -> None:
    assert version_of(ask(served, "m")) == "2"
    for version in ("1", "2"):
        assert version_of(ask(served, "m", version)) == version
        assert served.get(f"/v2/models/m/versions/{version}/ready").json()["version"] == version
        config = served.get(f"/v2/models/m/versions/{version}/config").json()
        assert config["version_policy"] == {"specific": {"versions": [int(version)]}}
    metadata = [served.get(f"/v2/models/m{at}").json() for at in ("", "/versions/1", "/versions/2")]
    assert [m["versions"] for m in metadata] == [["1", "2"]] * 3
    digests = [m["parameters"]["digest"] for m in metadata]
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize("version", ["0", "3", "01", "1.0", "latest", "-1", "%31%30", "1" * 500])
def test_no_other_version_answers(served: Server, version: str) -> None:
    for path in ("", "/ready", "/config", "/stats"):
        assert served.get(f"/v2/models/m/versions/{version}{path}").status_code == 404
    reply = ask(served, "m", version)
    assert reply.status_code == 404
    assert "version 1, 2" in reply.json()["error"]


def test_aliases_are_names_to_ask_by_and_nothing_else(served: Server) -> None:
    for name in ("m", "oldest", "m-latest"):
        assert version_of(ask(served, name)) == "2"
        assert version_of(ask(served, name, "1")) == "1"
        assert served.get(f"/v2/models/{name}/ready").ok
    reply = ask(served, "another.name")
    assert reply.json()["model_name"] == "another.name"
    metadata = served.get("/v2/models/another.name").json()
    assert metadata["name"] == "another.name"
    assert served.get("/v1/models/another.name").json()["id"] == "other"
    listed = [m["id"] for m in served.get("/v1/models").json()["data"]]
    assert listed == ["broken", "m", "other", "torn"]
    series = served.get("/metrics").text
    assert 'model="other"' in series
    assert "another.name" not in series
    assert "oldest" not in series


def test_a_version_has_its_own_statistics_entry(served: Server) -> None:
    address = served.url.removeprefix("http://")
    with triton.InferenceServerClient(address) as client:
        both = client.get_inference_statistics("m")["model_stats"]
        assert [s["version"] for s in both] == ["1", "2"]
        before = [s["inference_stats"]["success"]["count"] for s in both]
        for _ in range(3):
            assert version_of(served.infer("m/versions/1", X)) == "1"
        (one,) = client.get_inference_statistics("m", "1")["model_stats"]
        (two,) = client.get_inference_statistics("m", "2")["model_stats"]
        after = [s["inference_stats"]["success"]["count"] for s in (one, two)]
        assert after == [before[0] + 3, before[1]]
        assert one["version"] == "1"
        assert client.is_model_ready("m", "1")
        assert not client.is_model_ready("broken")
        assert not client.is_model_ready("torn", "1")


def test_a_model_that_is_not_required_fails_alone_and_says_why(served: Server) -> None:
    ready = {(m["name"], m["version"]): m for m in served.ready["models"]}
    whole = served.get("/readyz")
    assert whole.status_code == 200
    assert whole.json()["not_ready"] == ["broken", "torn"]
    for name, file in (("broken", "model.onnx"), ("torn", "tokenizer.json")):
        assert not ready[name, "1"]["ready"]
        assert f"{file} is altered" in ready[name, "1"]["why"]
        for path in (f"/v2/models/{name}/ready", f"/v2/models/{name}/versions/1/ready"):
            assert served.get(path).status_code == 503
        # Between two tries it is loading again, and still says why.
        deadline = time.monotonic() + 20
        report = served.get(f"/v2/models/{name}/ready").json()
        while f"{file} is altered" not in report["why"]:
            assert time.monotonic() < deadline, report
            time.sleep(0.1)
            report = served.get(f"/v2/models/{name}/ready").json()
        assert report["state"] in ("failed", "loading")
        assert report["next"]
        refused = ask(served, name)
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
    assert version_of(ask(served, "m")) == "2"
    log = "".join(served.log)
    assert "broken cannot be loaded, and is not required" in log
    assert "torn cannot be loaded, and is not required" in log
    assert "Traceback" not in log


def test_a_person_is_told_of_the_model_that_failed(
    artifacts: Path, placement: Placement, tmp_path: Path
) -> None:
    models = _absolute(entries(artifacts, placement)[:2], artifacts)
    config = write_config(tmp_path / "m.yaml", models)
    with subprocess.Popen(
        command("--config", str(config), "--port", "0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("stop with"):
                break
        process.terminate()
        _, errors = process.communicate(timeout=DEADLINE)
    said = "".join(lines)
    assert process.returncode == 0, said + errors
    assert re.search(r"broken version 1.*model.onnx is altered", said), said + errors
    assert "m version 1" in said
    # The request to copy is one that is answered.
    assert "/v2/models/broken/" not in said


def test_a_required_model_that_cannot_be_loaded_ends_it_with_its_own_code(
    artifacts: Path, placement: Placement, tmp_path: Path
) -> None:
    models = _absolute(entries(artifacts, placement)[:2], artifacts)
    models[0]["required"] = True
    models[1]["required"] = False
    done = serve(write_config(tmp_path / "m.yaml", models))
    assert done.returncode == 4, done.stderr
    assert "broken" in done.stderr
    assert "model.onnx is altered" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_where_nothing_can_be_loaded_nothing_is_served(
    artifacts: Path, placement: Placement, tmp_path: Path
) -> None:
    models = _absolute(entries(artifacts, placement)[:1], artifacts)
    done = serve(write_config(tmp_path / "m.yaml", models))
    assert done.returncode == 4, done.stderr
    assert "model.onnx is altered" in done.stderr


def test_a_damaged_tokenizer_is_an_integrity_error_like_any_other(
    placement: Placement, tmp_path: Path
) -> None:
    damage(tiny_embedder(tmp_path / "embedder"), "tokenizer.json")
    model = {"name": "e", "source": "embedder", "inline": placement is Placement.INLINE}
    done = serve(write_config(tmp_path / "m.yaml", [model]))
    assert done.returncode == 4, done.stderr
    assert "tokenizer.json is altered" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_version_twice_is_refused_before_anything_starts(
    artifacts: Path, tmp_path: Path
) -> None:
    models = [{"name": "m", "source": str(artifacts / "m" / end)} for end in ("2", "")]
    done = serve(write_config(tmp_path / "m.yaml", models))
    assert done.returncode == 3, done.stderr
    assert "m version 2 is served twice" in done.stderr
    assert "loading" not in done.stderr


def _absolute(models: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    return [{**m, "source": str(folder / m["source"])} for m in models]
