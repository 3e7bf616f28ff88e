"""What a request to serve means: file, environment and flags, all put together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact

from modelops.api.config import check
from modelops.api.serve import ServeRequest, plan, resolve
from modelops.config.keys import parse_keys
from modelops.errors import (
    InputError,
    IntegrityError,
    MissingEnvironmentError,
    ModelopsError,
    UsageError,
)

KEY = "a-key-from-the-file"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two artifacts, a configuration in ``conf`` and its keys."""
    for seed in (1, 2):
        make_artifact(tmp_path / "artifacts" / "mlp", seed=seed)
    make_artifact(tmp_path / "artifacts" / "ranker", name="ranker")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "keys").write_text(KEY + "\n")
    (tmp_path / "conf" / "keys").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(text: str, server: str = "") -> Path:
    path = Path("conf/modelops.yaml")
    path.write_text(f"version: 1\nserver: {{{server}}}\nmodels:\n{text}")
    return path


MLP = "  - {name: mlp, source: ../artifacts/mlp}\n"


def refused(kind: type[ModelopsError], **fields: Any) -> ModelopsError:
    with pytest.raises(kind) as caught:
        resolve(ServeRequest(**fields))
    assert type(caught.value) is kind
    return caught.value


def test_paths_in_a_file_are_relative_to_its_folder(folder: Path) -> None:
    config = resolve(ServeRequest(config=configure(MLP, "keys_file: keys")))
    (model,) = config.models
    assert model.source.resolve() == folder / "artifacts" / "mlp" / "2"
    assert model.asked is not None
    assert model.asked.resolve() == folder / "artifacts" / "mlp"
    assert [k.get_secret_value() for k in config.server.api_keys] == [KEY]


def test_a_piped_configuration_is_relative_to_the_working_folder(folder: Path) -> None:
    import os

    reading, writing = os.pipe()
    os.write(writing, b"version: 1\nmodels: [{name: a, source: artifacts/mlp}]\n")
    os.close(writing)
    try:
        config = resolve(ServeRequest(config=Path(f"/dev/fd/{reading}")))
    finally:
        os.close(reading)
    assert config.models[0].source == Path("artifacts/mlp/2")


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(folder: Path) -> None:
    said: list[str] = []
    config = resolve(
        ServeRequest(
            config=configure(MLP, "port: 1001, fronts: 2, drain_seconds: 3, host: localhost"),
            environment={"MODELOPS_PORT": "1002", "MODELOPS_FRONTS": "4", "HOST": "x"},
            server={"port": 1003},
            limits={"max_body_mb": 7},
        ),
        said.append,
    )
    server = config.server
    assert (server.port, server.fronts, server.drain_seconds) == (1003, 4, 3)
    assert (server.host, server.admin_port) == ("localhost", None)
    assert (config.limits.max_body_mb, config.limits.max_json_mb) == (7, 16)
    assert said == ["the environment overrides server.fronts"]


def test_keys_of_every_place_count_once_and_are_never_in_the_plan(folder: Path) -> None:
    (folder / "more").write_text(f"{KEY}\nanother-long-key\n")
    environment = {
        "MODELOPS_KEYS_FILE": "more",
        "MODELOPS_API_KEYS": "third-long-key,key-from-flag",
    }
    request = ServeRequest(
        config=configure(MLP, "keys_file: not-there"),
        environment=environment,
        server={"api_keys": parse_keys("key-from-flag")},
    )
    config = resolve(request)
    found = {k.get_secret_value() for k in config.server.api_keys}
    assert found == {KEY, "another-long-key", "third-long-key", "key-from-flag"}
    shown = plan(config).model_dump_json()
    assert '"api_keys":4' in shown
    for text in (shown, repr(request), repr(config), config.model_dump_json()):
        assert not [key for key in found if key in text]


def test_required_is_decided_by_how_many_models_there_are(folder: Path) -> None:
    def required(text: str) -> list[bool | None]:
        return [m.required for m in resolve(ServeRequest(config=configure(text))).models]

    ranker = "  - {name: ranker, source: ../artifacts/ranker}\n"
    older = "  - {name: mlp, source: ../artifacts/mlp/1}\n"
    assert required(MLP) == [True]
    assert required(MLP + older) == [True, True]
    assert required(MLP + ranker) == [False, False]
    assert required(MLP + ranker.replace("}", ", required: true}")) == [False, True]
    assert required(MLP.replace("}", ", required: false}")) == [False]


def test_two_entries_of_one_name_serve_two_versions_but_not_one_twice(folder: Path) -> None:
    older = "  - {name: mlp, source: ../artifacts/mlp/1, aliases: [stable]}\n"
    config = resolve(ServeRequest(config=configure(MLP + older)))
    assert [(m.name, m.version) for m in plan(config).models] == [("mlp", "2"), ("mlp", "1")]
    same = "  - {name: mlp, source: ../artifacts/mlp/2}\n"
    path = configure(MLP + same)
    told = refused(InputError, config=path).message
    assert told.startswith(f"{path}, line 5: models[1]: mlp version 2 is served twice: from ")
    refused(UsageError, sources=("artifacts/mlp", "artifacts/mlp/2"))
    named = ServeRequest(sources=("artifacts/mlp", "artifacts/mlp/1"))
    assert [m.version for m in plan(resolve(named)).models] == ["2", "1"]


def test_every_source_that_fails_is_told_with_its_line(folder: Path) -> None:
    path = configure(
        "  - {name: a, source: nowhere}\n" + MLP + "  - name: c\n    source: ../artifacts/mlp\n"
        "    engine: onnxruntim\n"
    )
    told = refused(InputError, config=path).message.splitlines()
    assert told[0] == f"{path}, line 4: models[0] (a): there is nothing at conf/nowhere"
    assert told[1].startswith(f"{path}, line 6: models[2] (c): no engine is registered as 'onnxr")
    assert "did you mean onnxruntime?" in told[1]
    assert len(told) == 2


def test_an_artifact_that_is_not_whole_keeps_its_kind(folder: Path) -> None:
    (folder / "artifacts/mlp/2/modelops.json").write_text("{}")
    told = refused(IntegrityError, config=configure(MLP)).message
    assert "line 4: models[0] (mlp): " in told


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"sources": ["artifacts/mlp"]}, "SOURCE"),
        ({"names": ["x"]}, "--name"),
        ({"options": {"max_batch": 2, "inline": True}}, "--max-batch, --inline"),
    ],
)
def test_a_file_excludes_what_it_says_itself(
    folder: Path, fields: dict[str, Any], named: str
) -> None:
    told = refused(UsageError, config=configure(MLP), **fields).message
    assert f"{named} cannot be given beside it" in told


def test_options_of_flags_reach_every_model_where_the_file_has_them(folder: Path) -> None:
    options = {"max_batch": 4, "max_delay_ms": 7.5, "max_queue": 9, "replicas": 2, "threads": 1}
    config = resolve(
        ServeRequest(
            sources=("artifacts/mlp", "artifacts/ranker"), names=("a", "b"), options=options
        )
    )
    for model in config.models:
        assert (model.batching.max_size, model.batching.max_delay_ms) == (4, 7.5)
        assert (model.admission.max_queue, model.replicas, model.threads) == (9, 2, 1)
    assert [m.name for m in config.models] == ["a", "b"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"options": {"max_batch": 0}}, "--max-batch: should be greater"),
        ({"options": {"max_delay_ms": float("nan")}}, "--max-delay-ms: should be a finite"),
        ({"options": {"max_queue": 0}}, "--max-queue: "),
        ({"options": {"provider": "gpu"}}, "--provider: should be 'auto'"),
        ({"options": {"engine": "onnxruntme"}}, "did you mean onnxruntime"),
        ({"options": {"inline": True, "replicas": 2}}, "replicas must be 1"),
        ({"options": {"kv_cache_dtype": "fp8"}}, "--kv-cache-dtype: there are options for"),
        ({"options": {"engine": "openai"}}, "no flag has its address"),
        ({"names": ["a", "b"]}, "2 names for 1 sources"),
        ({"names": ["../x"]}, "--name: '../x' is no model name"),
        ({"server": {"port": 70000}}, "--port: should be less"),
        ({"server": {"port": 9, "admin_port": 9}}, "port and admin_port are both 9"),
        ({"server": {"host": "a b"}}, "--host: 'a b' is no host"),
        ({"server": {"api_keys": ("short",)}}, "--api-key: an API key is at least 8"),
        ({"limits": {"max_body_mb": 0}}, "--max-body-mb: "),
        ({"environment": {"MODELOPS_PORT": "x"}}, "MODELOPS_PORT: "),
    ],
)
def test_a_flag_that_cannot_be_meant_is_named(
    folder: Path, fields: dict[str, Any], told: str
) -> None:
    assert told in refused(UsageError, **fields).message


def test_a_keys_file_that_is_off_is_bad_input(folder: Path) -> None:
    refused(InputError, config=configure(MLP, "keys_file: none"))
    refused(InputError, environment={"MODELOPS_KEYS_FILE": "none"})


def test_without_a_source_the_newest_is_served_and_named(folder: Path) -> None:
    said: list[str] = []
    (model,) = resolve(ServeRequest(), said.append).models
    assert model.name == "ranker"
    assert said == ["no source given: serving the newest artifact, artifacts/ranker/1"]


def test_h10_a_plan_that_serve_would_refuse_is_warned_about(folder: Path) -> None:
    said: list[str] = []
    path = configure(MLP, "host: 0.0.0.0")
    check(path, {}, said.append)
    assert len(said) == 1
    assert "there is no API key" in said[0]
    check(path, {"MODELOPS_API_KEYS": "long-enough-key"}, said.append)
    assert len(said) == 1


def test_check_says_what_serve_would_do_and_finds_what_it_would_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = configure(MLP.replace("}", ", engine: absent}"), "port: 9000")
    site = folder / "site" / "absent-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: absent\nVersion: 1.0\n")
    (site / "entry_points.txt").write_text("[modelops.engines]\nabsent = absent_engine:Engine\n")
    monkeypatch.syspath_prepend(str(site.parent))
    with pytest.raises(MissingEnvironmentError, match=r"line 4: models.0. .mlp.: absent_engine"):
        check(path, {})
    found = check(configure(MLP, "port: 9000"), {"MODELOPS_FRONTS": "3"})
    assert (found.port, found.fronts, found.models[0].version) == (9000, 3, "2")


def test_planning_loads_no_runtime(folder: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from modelops.api.serve import *;"
        f"resolve(ServeRequest(config=Path({str(configure(MLP))!r})));"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder
    )
    loaded = set(done.stdout.split())
    assert not loaded & {"onnxruntime", "onnx", "torch", "fastapi", "uvicorn", "modelops_servers"}
