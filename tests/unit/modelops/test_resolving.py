"""From what was asked to the version and the engine that serve it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact

from modelops import registry
from modelops.config import ModelEntry
from modelops.errors import InputError, IntegrityError, UsageError
from modelops.resolving import FORMATS, resolve_again, resolve_model, version


def entry(source: Path, **fields: Any) -> ModelEntry:
    return ModelEntry(name="m", source=source, **fields)


@pytest.fixture
def mlp(tmp_path: Path) -> Path:
    for seed in (1, 2):
        make_artifact(tmp_path / "mlp", seed=seed)
    return tmp_path / "mlp"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install, as pip would, a package that brings an engine for a format of its own."""
    site = tmp_path / "site"
    info = site / "modelops_slow-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: modelops-slow\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[modelops.engines]\nslow = slow_engine:SlowEngine\n")
    (site / "slow_engine.py").write_text("class SlowEngine:\n    formats = ('slow', 'onnx')\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "slow_engine", raising=False)
    return "slow"


def test_what_the_built_in_engines_serve_is_what_they_say() -> None:
    assert {name: registry.resolve("engines", name).formats for name in FORMATS} == FORMATS
    assert set(FORMATS) == set(registry.names("engines"))


def test_the_newest_version_and_its_engine_are_found(mlp: Path) -> None:
    model = resolve_model(entry(mlp, aliases=["x"], threads=3, required=False))
    assert (model.source, model.asked, version(model)) == (mlp / "2", mlp, 2)
    assert (model.engine, model.aliases, model.threads) == ("onnxruntime", ("x",), 3)
    assert model.required is False


def test_a_version_asked_for_is_that_one_also_from_inside(
    mlp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert version(resolve_model(entry(mlp / "1"))) == 1
    monkeypatch.chdir(mlp / "2")
    assert version(resolve_model(entry(Path()))) == 2


def test_asked_again_it_finds_what_was_published_since_and_keeps_all_else(mlp: Path) -> None:
    newest = resolve_model(entry(mlp, threads=2, required=True))
    fixed = resolve_model(entry(mlp / "1"))
    make_artifact(mlp, seed=3)
    again = resolve_again(newest)
    assert again == newest.model_copy(update={"source": mlp / "3"})
    assert resolve_again(again) == again
    assert resolve_again(fixed) == fixed


def test_asked_again_an_engine_is_not_swapped_for_another(mlp: Path) -> None:
    model = resolve_model(entry(mlp))
    make_artifact(mlp, format="torch-export", entry="m.pt2", files={"m.pt2": b"code"})
    with pytest.raises(InputError, match=r"'onnxruntime' serves onnx, and .*3 is torch-export"):
        resolve_again(model)


@pytest.mark.parametrize("name", ["onnxruntme", "ONNXRuntime", "onnx-runtime", "onnx"])
def test_an_engine_that_is_not_registered_names_the_nearest(mlp: Path, name: str) -> None:
    with pytest.raises(InputError, match="did you mean onnxruntime") as caught:
        resolve_model(entry(mlp, engine=name))
    assert caught.value.hint == "one of: " + ", ".join(registry.names("engines"))


def test_what_cannot_be_served_is_told(mlp: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no engine is registered as 'scripted'$"):
        resolve_model(entry(mlp, engine="scripted"))
    with pytest.raises(InputError, match=r"'vllm' serves huggingface, and .* is onnx"):
        resolve_model(entry(mlp, engine="vllm"))
    with pytest.raises(InputError, match=r"has version 1, 2|nothing at"):
        resolve_model(entry(mlp / "7"))
    made = make_artifact(tmp_path / "p", format="theirs", entry="m.so", files={"m.so": b"code"})
    with pytest.raises(InputError, match="no engine here serves theirs"):
        resolve_model(entry(made.path))
    with pytest.raises(InputError, match="'onnxruntime' serves onnx"):
        resolve_model(entry(made.path, engine="onnxruntime"))
    (mlp / "1" / "modelops.json").write_text("{}")
    with pytest.raises(IntegrityError):
        resolve_model(entry(mlp / "1"))


def test_planning_imports_an_engine_only_where_it_must(
    mlp: Path, tmp_path: Path, plugin: str
) -> None:
    assert resolve_model(entry(mlp, engine=plugin)).engine == plugin
    assert "slow_engine" not in sys.modules
    assert resolve_model(entry(mlp, engine=plugin), import_engine=True).engine == plugin
    made = make_artifact(tmp_path / "p", format="theirs", entry="m.so", files={"m.so": b"code"})
    with pytest.raises(InputError, match=r"'slow' serves slow, onnx, and .* is theirs"):
        resolve_model(entry(made.path, engine=plugin), import_engine=True)


def test_a_misspelt_plugin_is_named_too(mlp: Path, plugin: str) -> None:
    with pytest.raises(InputError, match="did you mean slow"):
        resolve_model(entry(mlp, engine=f"{plugin}w"))
    with pytest.raises(UsageError):
        registry.resolve("engines", f"{plugin}w")
