"""S21: in one call with others, each gets its own answer or its own failure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import row_models

from modelops.errors import (
    DeadlineError,
    EngineError,
    ModelopsError,
    NotReadyError,
    OverloadedError,
    RequestError,
)
from modelops.protocols import Health, Tensors
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_servers.batching import Item, ItemMaker, answer

SIGNATURE = Signature(
    inputs=(TensorSpec(name="x", dtype="float32", shape=("batch",)),),
    outputs=(TensorSpec(name="y", dtype="float32", shape=("batch",)),),
    dims={"batch": DimRange(min=1, max=64)},
)


class Scripted:
    """An engine that does what it is told, and keeps the size and deadline of each call."""

    def __init__(self, compute: Callable[[Any], Any]) -> None:
        self.compute = compute
        self.calls: list[list[float]] = []
        self.deadlines: list[float | None] = []

    def start(self) -> None:
        return

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
        self.calls.append([float(x) for x in tensors["x"]])
        self.deadlines.append(deadline)
        return {"y": self.compute(tensors["x"])}

    def stop(self, deadline: float | None) -> None:
        return

    def health(self) -> Health:
        return Health("ready", "scripted", time.time())

    def describe(self) -> dict[str, Any]:
        return {}


def items(*values: float, **times: Any) -> list[Item]:
    maker = ItemMaker(SIGNATURE)
    return [maker.make({"x": np.array([v], "f4")}, **times) for v in values]


def failing(error: type[Exception], *guilty: float) -> Scripted:
    def compute(x: Any) -> Any:
        if np.isin(x, guilty).any():
            raise error("bad")
        return x * 2

    return Scripted(compute)


def short(results: list[Any]) -> list[Any]:
    return [type(r) if isinstance(r, ModelopsError) else float(r["y"][0]) for r in results]


@pytest.mark.parametrize("bad", range(8))
def test_s21_one_bad_item_of_eight_and_a_real_runtime(tmp_path: Path, bad: int) -> None:
    engine, signature = row_models.look_up(tmp_path / "m")
    sent = [ItemMaker(signature).make({"ids": np.array([n])}) for n in range(8)]
    sent[bad].tensors["ids"][0] = 99  # type: ignore[index]
    results = answer(engine, signature, sent)
    for number, result in enumerate(results):
        if number == bad:
            assert isinstance(result, ModelopsError)
            assert "99" in result.message, "the runtime's own words"
        else:
            assert isinstance(result, dict)
            np.testing.assert_array_equal(result["y"], [np.arange(4) + 4 * number])


def test_all_in_one_call_where_nothing_fails() -> None:
    engine = failing(RequestError)
    assert short(answer(engine, SIGNATURE, items(1, 2, 3))) == [2, 4, 6]
    assert engine.calls == [[1, 2, 3]]


@pytest.mark.parametrize("error", [RequestError, EngineError])
def test_only_the_guilty_fail_and_halving_finds_them(error: type[ModelopsError]) -> None:
    engine = failing(error, 5, 6)
    results = answer(engine, SIGNATURE, items(*range(32)))
    assert short(results) == [error if n in (5, 6) else 2 * n for n in range(32)]
    assert len(engine.calls) < 20


def test_what_nobody_foresaw_becomes_an_engine_error_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    results = answer(failing(ZeroDivisionError, 2), SIGNATURE, items(1, 2, 3, 4))
    assert short(results) == [2, EngineError, 6, 8]
    assert "ZeroDivisionError" in caplog.text


def test_a_batch_too_large_for_the_runtime_is_answered_in_parts() -> None:
    def compute(x: Any) -> Any:
        if x.size > 2:
            raise MemoryError
        return x * 2

    engine = Scripted(compute)
    assert short(answer(engine, SIGNATURE, items(*range(8)))) == [2 * n for n in range(8)]
    assert max(len(call) for call in engine.calls[-2:]) == 2


@pytest.mark.parametrize("error", [NotReadyError, OverloadedError, DeadlineError])
def test_what_is_nobodys_fault_is_everybodys_and_is_not_tried_again(
    error: type[ModelopsError],
) -> None:
    engine = failing(error, 1)
    assert short(answer(engine, SIGNATURE, items(0, 1, 2))) == [error] * 3
    assert len(engine.calls) == 1


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x[:-1],
        lambda x: np.concatenate([x, x]),
        lambda x: np.float32(1),
        lambda x: x[:, None],
    ],
)
def test_outputs_of_the_wrong_rows_are_nobodys_answer(compute: Callable[[Any], Any]) -> None:
    for count in (1, 2, 3):
        results = answer(Scripted(compute), SIGNATURE, items(*range(count)))
        assert short(results) == [EngineError] * count


def test_a_missing_output_is_an_engine_error() -> None:
    engine = Scripted(lambda x: x)
    renamed = SIGNATURE.model_copy(
        update={"outputs": (TensorSpec(name="z", dtype="float32", shape=("batch",)),)}
    )
    (result,) = answer(engine, renamed, items(1))
    assert isinstance(result, EngineError)
    assert "'z'" in result.message


@pytest.mark.parametrize("dtype", ["f8", "f2", "i4", "O", ">f4"])
def test_outputs_of_another_dtype_are_an_engine_error(dtype: str) -> None:
    engine = Scripted(lambda x: x.astype(dtype) if x.max() > 2 else x)
    results = answer(engine, SIGNATURE, items(1, 2, 3))
    assert short(results) == [1, 2, EngineError]
    assert isinstance(results[2], EngineError)
    assert "'y' is" in results[2].message


def test_padded_outputs_of_the_wrong_length_are_nobodys_answer(tmp_path: Path) -> None:
    engine, signature = row_models.tagger(tmp_path / "m")
    sent = tokens(signature, [[1, 2], [3, 4, 5]])

    class Cut:
        def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
            return {n: a[:, :-1] for n, a in engine.infer(tensors, deadline).items()}

    assert {type(r) for r in answer(Cut(), signature, sent)} == {EngineError}  # type: ignore[arg-type]


def test_token_classification_is_cut_back_and_is_what_each_gives_alone(tmp_path: Path) -> None:
    engine, signature = row_models.tagger(tmp_path / "m")
    sent = tokens(signature, [[1], [2, 3, 4, 5, 6], [7, 8]])
    for item, result in zip(sent, answer(engine, signature, sent), strict=True):
        assert isinstance(result, dict)
        assert result["tags"].shape == (1, item.length, 4)
        np.testing.assert_allclose(
            result["tags"], engine.infer(item.tensors, None)["tags"], atol=1e-6
        )


def tokens(signature: Signature, rows: list[list[int]]) -> list[Item]:
    maker = ItemMaker(signature)
    return [maker.make({"ids": np.array([r]), "mask": np.ones((1, len(r)), "i8")}) for r in rows]


def test_the_engine_may_give_up_only_when_nobody_waits_any_more() -> None:
    engine = failing(RequestError)
    answer(engine, SIGNATURE, [*items(1, deadline=5.0), *items(2, deadline=9.0)])
    answer(engine, SIGNATURE, [*items(1, deadline=5.0), *items(2)])
    assert engine.deadlines == [9.0, None]


def test_while_the_guilty_are_sought_the_late_and_the_withdrawn_are_not_run_again() -> None:
    engine = failing(RequestError, 1)
    sent = items(1, 2, deadline=5.0) + items(3, 4, 5, deadline=20.0)
    sent[4].cancelled = True
    results = answer(engine, SIGNATURE, sent, monotonic=lambda: 10.0)
    assert short(results) == [DeadlineError, DeadlineError, 6, 8, EngineError]
    assert engine.calls == [[1, 2, 3, 4, 5], [3, 4]]


def test_without_a_batch_dim_the_lone_answer_is_passed_on(tmp_path: Path) -> None:
    x = TensorSpec(name="x", dtype="float32", shape=(4,))
    y = TensorSpec(name="y", dtype="float32", shape=(4,))
    node = row_models.helper.make_node("Identity", ["x"], ["y"])
    engine, signature = row_models.engine(tmp_path / "m", [node], (x,), (y,), dims={})
    (result,) = answer(engine, signature, [ItemMaker(signature).make({"x": np.ones(4, "f4")})])
    assert isinstance(result, dict)
    assert result["y"].shape == (4,)
