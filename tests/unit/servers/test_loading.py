"""From a config to an engine that is ready: how many calls run side by side, and when."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_artifacts import make_artifact, mlp_reference
from scripted_engine import ScriptedEngine

from modelops import registry
from modelops.config import ModelConfig
from modelops.errors import UsageError
from modelops_servers import loading
from modelops_servers.engines import onnxruntime_engine
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine
from modelops_servers.loading import Prepared, prepare


def prepared(folder: Path, **settings: Any) -> Prepared:
    make_artifact(folder / "mlp")
    source = folder / "mlp" / "1"
    fields = {"engine": "onnxruntime", "provider": "cpu", "threads": 4, **settings}
    return prepare(ModelConfig(name="mlp", source=source, **fields))


def test_calls_that_take_no_time_are_not_handed_around(tmp_path: Path) -> None:
    one = prepared(tmp_path)
    assert (one.lanes, one.describe()["lanes"]) == (1, 1)


@pytest.mark.parametrize(
    ("settings", "lanes"),
    [({}, 4), ({"threads": 1}, 1), ({"lanes": 2}, 2), ({"lanes": 1}, 1), ({"lanes": 3}, 3)],
)
def test_long_calls_get_a_lane_for_each_thread_or_as_many_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, int], lanes: int
) -> None:
    monkeypatch.setattr(loading, "_WORTH_A_LANE_SECONDS", 0.0)
    one = prepared(tmp_path, **settings)
    assert (one.lanes, one.describe()["lanes"]) == (lanes, lanes)


def test_a_model_too_large_to_be_held_twice_has_one_lane_unless_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_WORTH_A_LANE_SECONDS", 0.0)
    monkeypatch.setattr(onnxruntime_engine, "_LARGEST_TWICE", 10)
    assert prepared(tmp_path / "a").lanes == 1
    assert prepared(tmp_path / "b", lanes=2).lanes == 2


def test_an_engine_that_runs_one_call_at_a_time_refuses_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Onnx(ScriptedEngine):
        formats = ("onnx",)

        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

        def infer(self, tensors: Any, deadline: float | None) -> dict[str, Any]:
            return {"y": mlp_reference(tensors["x"])}

    monkeypatch.setattr(registry, "resolve", lambda _kind, _name: Onnx)
    assert prepared(tmp_path / "a").lanes == 1
    with pytest.raises(UsageError, match="runs one inference at a time"):
        prepared(tmp_path / "b", lanes=2)


def test_alone_a_call_has_all_threads_and_in_a_crowd_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OnnxRuntimeEngine(make_artifact(tmp_path / "mlp"), provider="cpu", threads=4)
    engine.start()
    engine.side_by_side(2)
    wide, narrow = engine._session, engine._narrow
    assert wide is not None
    assert narrow is not None
    assert wide.get_session_options().intra_op_num_threads == 4
    assert narrow.get_session_options().intra_op_num_threads == 2
    used: list[str] = []
    both = threading.Barrier(2)

    def run(session: Any, tensors: Any, deadline: float | None) -> dict[str, Any]:
        used.append("wide" if session is wide else "narrow")
        if len(used) < 3:
            both.wait(10)
        return {}

    monkeypatch.setattr(engine, "_infer", run)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: engine.infer({}, None), range(2)))
    assert sorted(used) == ["narrow", "wide"]
    engine.infer({}, None)
    assert used[2] == "wide"


def test_side_by_side_each_call_gets_its_own_answer(tmp_path: Path) -> None:
    engine = OnnxRuntimeEngine(make_artifact(tmp_path / "mlp"), provider="cpu", threads=3)
    engine.start()
    engine.side_by_side(3)
    inputs = [np.full((1 + i % 5, 4), i / 100, "f4") for i in range(300)]
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda x: engine.infer({"x": x}, None)["y"], inputs))
    for x, y in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(y, mlp_reference(x), rtol=1e-5, atol=1e-6)
    assert engine._calls == 0
