"""Two artifacts side by side: signatures field by field, and fresh inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from modelops.artifact.manifest import Tolerance
from modelops.parity.between import compare_afresh, differences, looser
from modelops.signature import DimRange, Signature, TensorSpec


def signature(shape: tuple[int | str, ...] = ("batch", 3), dtype: str = "float32") -> Signature:
    spec = TensorSpec(name="x", dtype=dtype, shape=shape)
    out = TensorSpec(name="y", dtype="float32", shape=shape)
    return Signature(inputs=(spec,), outputs=(out,), dims={"batch": DimRange(min=1, max=64)})


class Adds:
    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.sizes: list[int] = []

    def run(self, inputs: Any) -> Any:
        self.sizes.append(len(inputs["x"]))
        return {"y": inputs["x"] + np.float32(self.amount)}


def test_signatures_are_told_apart_field_by_field() -> None:
    assert differences(signature(), signature()) == []
    other = signature(("batch", 4), "float16")
    assert differences(signature(), other) == [
        "input 'x': dtype float32 in the first, float16 in the second",
        "input 'x': shape [batch, 3] in the first, [batch, 4] in the second",
        "output 'y': shape [batch, 3] in the first, [batch, 4] in the second",
    ]
    bare = signature().model_copy(update={"outputs": ()})
    assert differences(signature(), bare) == ["output 'y' is only in the first"]


def test_fresh_inputs_stay_within_what_was_proven_and_find_what_differs() -> None:
    tight = Tolerance(atol=1e-4, rtol=1e-4, min_cosine=0.99999)
    half = Tolerance(atol=1e-2, rtol=1e-2, min_cosine=0.999)
    assert looser(tight, half) == half

    def compared(amount: float, tolerance: Tolerance) -> tuple[list[bool], list[int]]:
        first = Adds(0)
        found = compare_afresh(
            signature(),
            first,
            Adds(amount),
            proven=[{"batch": 1}, {"batch": 20}],
            points=6,
            tolerance=tolerance,
            seed=0,
            progress=lambda _: None,
        )
        return [p.passed for p in found], first.sizes

    passed, sizes = compared(1e-3, half)
    assert all(passed)
    assert len(set(sizes)) > 2
    assert max(sizes) <= 20
    assert not any(compared(1e-3, tight)[0])
