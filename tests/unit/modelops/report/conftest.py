from __future__ import annotations

import pytest

from modelops.artifact.manifest import (
    OutputParity,
    Parity,
    ParityPoint,
    Precision,
    Source,
    TextOptions,
    Tolerance,
)
from modelops.report.export import ExportReport, Step
from modelops.signature import DimRange, Padding, Signature, TensorSpec

_SIZES = [(1, 1), (2, 7), (3, 32), (5, 128), (16, 256)]
_ERRORS = [0.0, 6.0e-8, 8.9e-8, 1.1e-7, 1.5e-7, 7.5e-8, 9.2e-8, 1.3e-7, 2.1e-7]


def _tokens(name: str, top: int) -> TensorSpec:
    return TensorSpec(name=name, dtype="int64", shape=("batch", "sequence"), bounds=(0, top))


SIGNATURE = Signature(
    inputs=(
        _tokens("input_ids", 30521),
        _tokens("attention_mask", 1),
        _tokens("token_type_ids", 1),
    ),
    outputs=(TensorSpec(name="embedding", dtype="float32", shape=("batch", 384)),),
    dims={"batch": DimRange(min=1, max=64), "sequence": DimRange(min=1, max=256)},
    padding=Padding(dim="sequence", mask="attention_mask", values={"input_ids": 0}),
)


def point(
    batch: int, sequence: int, error: float | None, *, padded: bool = False, **output: object
) -> ParityPoint:
    """One checked point with one output."""
    values: dict[str, object] = {
        "output": "embedding",
        "max_abs": error,
        "max_rel": None if error is None else error * 40,
        "cosine": 1.0,
        "passed": True,
        **output,
    }
    return ParityPoint(
        label={1: "minimum", 16: "largest"}.get(batch, "between"),
        dims={"batch": batch, "sequence": sequence},
        inputs="realistic" if padded else "random",
        padded=padded,
        outputs=(OutputParity.model_validate(values),),
    )


def parity(*points: ParityPoint, checks: tuple[str, ...] = ()) -> Parity:
    """A parity record over ``points`` with the fp32 tolerance."""
    return Parity(
        tolerance=Tolerance(atol=1e-4, rtol=1e-4, min_cosine=0.9999),
        seed=0,
        memory_budget=1 << 30,
        points=points,
        checks=checks,
    )


@pytest.fixture
def passing() -> ExportReport:
    sizes = [*_SIZES, *_SIZES[1:]]
    points = [
        point(b, s, error, padded=index >= len(_SIZES))
        for index, ((b, s), error) in enumerate(zip(sizes, _ERRORS, strict=True))
    ]
    return ExportReport(
        name="minilm",
        format="onnx",
        task="embedding",
        source=Source(format="huggingface", name="all-MiniLM-L6-v2", sha256="5c" * 32),
        signature=SIGNATURE,
        precision=Precision(asked="float32", found="float32"),
        opset=23,
        text=TextOptions(max_tokens=256, pooling="mean", normalized=True),
        parity=parity(*points, checks=("padding does not change an item's answer",)),
        notes=(
            "the model was in train(); exported in eval()",
            "batch and sequence were not given: 1..64 and 1..256",
        ),
        chain=(
            Step(name="loading", seconds=1.4, peak_mb=412),
            Step(name="tracing", seconds=3.1, peak_mb=780),
            Step(name="writing", seconds=4.7, peak_mb=905),
            Step(name="checking", seconds=0.31),
            Step(name="parity", seconds=3.9, peak_mb=1240),
        ),
        sizes={
            "model.onnx": 1_120_332,
            "model.onnx.data": 90_868_736,
            "tokenizer.json": 711_661,
            "config.json": 612,
            "samples.safetensors": 402_112,
        },
        source_bytes=90_868_376,
        toolchain={"modelops": "0.1.0", "torch": "2.13.0", "onnxruntime": "1.32.0"},
        command="modelops export all-MiniLM-L6-v2 --to onnx -o artifacts/minilm",
        location="artifacts/minilm",
        digest="sha256:" + "ab" * 32,
        passed=True,
    )


@pytest.fixture
def failing(passing: ExportReport) -> ExportReport:
    bad = point(
        3, 7, 1.52, passed=False, cosine=0.912, why="412 of 1152 elements exceed the tolerance"
    )
    lost = point(
        5, 31, None, passed=False, max_rel=None, cosine=None, why="NaN where eager is finite"
    )
    return passing.model_copy(
        update={
            "parity": parity(passing.parity.points[0], bad, lost, passing.parity.points[3]),
            "passed": False,
            "location": None,
        }
    )
