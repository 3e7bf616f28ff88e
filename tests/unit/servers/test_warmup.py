"""What an engine is warmed up with: every size class, bounded in time and memory."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import server_zoo
from fake_artifacts import make_artifact, mlp_signature

from modelops.artifact import open_artifact
from modelops.config import BatchingConfig
from modelops.errors import EngineError
from modelops.protocols import Tensors
from modelops.signature import DimRange, Padding, Signature, TensorSpec
from modelops_servers.check import InputCheck
from modelops_servers.engines.onnxruntime_engine import OnnxRuntimeEngine
from modelops_servers.engines.warmup import (
    inputs_at,
    positions,
    size_classes,
    warm_up,
    warmup_inputs,
)


def tokens(longest: int, batch: DimRange | None = None) -> Signature:
    return Signature(
        inputs=(TensorSpec(name="ids", dtype="int64", shape=("batch", "sequence")),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),),
        dims={
            "batch": batch or DimRange(min=1, max=64),
            "sequence": DimRange(min=2, max=longest),
        },
        padding=Padding(dim="sequence", mask="ids", values={"ids": 0}),
    )


class Timed:
    """An engine whose calls take ``each`` seconds a position, and fail above ``most``."""

    def __init__(self, signature: Signature, each: float = 0.0, most: int = 2**40) -> None:
        self.signature, self.each, self.most = signature, each, most
        self.check = InputCheck(signature)
        self.seen: list[int] = []

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, Any]:
        count = positions(self.signature, self.check(tensors))
        self.seen.append(count)
        if count > self.most:
            raise EngineError("out of memory")
        time.sleep(self.each * count)
        return {}


@pytest.mark.parametrize(
    ("batch", "max_size", "rows"),
    [
        (DimRange(min=1, max=64), 32, [1, 2, 4, 8, 16, 32]),
        (DimRange(min=1, max=5), 32, [1, 2, 4, 5]),
        (DimRange(min=0, max=64), 1, [1]),
        (DimRange(min=3, max=64), 10, [3, 4, 8, 10]),
        (DimRange(min=1, max=1), 32, [1]),
        (DimRange(min=6, max=8), 32, [6]),
    ],
)
def test_rows_are_powers_of_two_up_to_what_one_call_may_hold(
    batch: DimRange, max_size: int, rows: list[int]
) -> None:
    signature = mlp_signature().model_copy(update={"dims": {"batch": batch}})
    classes = size_classes(signature, BatchingConfig(max_size=max_size))
    assert [sizes["batch"] for sizes in classes] == rows


def test_lengths_are_the_ends_and_two_between_and_all_are_in_range() -> None:
    signature = tokens(256)
    classes = size_classes(signature, BatchingConfig())
    assert {s["sequence"] for s in classes if s["batch"] == 1} == {2, 32, 128, 256}
    assert {"batch": 32, "sequence": 128} in classes
    check = InputCheck(signature)
    for sizes in classes:
        assert check(inputs_at(signature, sizes)) == sizes
    costs = [positions(signature, sizes) for sizes in classes]
    assert costs == sorted(costs)


def test_many_rows_of_what_is_large_are_left_out() -> None:
    signature = tokens(2**20)
    classes = size_classes(signature, BatchingConfig())
    assert max(positions(signature, s) for s in classes if s["batch"] > 1) <= 4096
    assert all(signature.nbytes(s) <= 64 * 2**20 for s in classes)
    huge = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=("batch", "n")),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", "n")),),
        dims={"batch": DimRange(min=1, max=64), "n": DimRange(min=2**25, max=2**26)},
    )
    assert size_classes(huge, BatchingConfig()) == [{"batch": 1, "n": 2**25}]


def test_without_a_batch_dim_there_is_one_class() -> None:
    fixed = Signature(
        inputs=(TensorSpec(name="x", dtype="float32", shape=(4,)),),
        outputs=(TensorSpec(name="y", dtype="float32", shape=(4,)),),
    )
    assert size_classes(fixed, BatchingConfig()) == [{}]


def test_every_class_is_run_and_timed() -> None:
    signature = tokens(256)
    engine = Timed(signature, each=1e-6)
    timings = warm_up(engine.infer, signature, BatchingConfig())
    wanted = [positions(signature, s) for s in size_classes(signature, BatchingConfig())]
    assert [count for count, _ in timings] == wanted
    assert set(engine.seen) == set(wanted)
    assert all(seconds >= 1e-6 * count for count, seconds in timings)


def test_a_slow_model_is_not_kept_from_its_callers() -> None:
    signature = tokens(256)
    engine = Timed(signature, each=1e-3)
    began = time.monotonic()
    timings = warm_up(engine.infer, signature, BatchingConfig(), seconds=0.5)
    assert 2 < len(timings) < 15
    assert time.monotonic() - began < 2


def test_a_class_that_fails_ends_the_warm_up_but_the_first_must_not() -> None:
    signature = tokens(256)
    timings = warm_up(Timed(signature, most=100).infer, signature, BatchingConfig())
    assert max(count for count, _ in timings) <= 100
    with pytest.raises(EngineError):
        warm_up(Timed(signature, most=0).infer, signature, BatchingConfig())


def test_real_engines_take_all_of_it(tmp_path: Path) -> None:
    for path in (make_artifact(tmp_path / "mlp").path, server_zoo.tiny_embedder(tmp_path / "e")):
        artifact = open_artifact(path)
        engine = OnnxRuntimeEngine(artifact, provider="cpu", threads=1)
        engine.start()
        assert list(warmup_inputs(artifact))
        assert len(warm_up(engine.infer, artifact.manifest.signature, BatchingConfig())) > 2
