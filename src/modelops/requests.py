"""What a caller asks of an export, and what it gets back."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from modelops.artifact.manifest import ArtifactName, Parity, Tolerance
from modelops.signature import DimRange, Frozen, TensorSpec

DEFAULT_MEMORY_BUDGET = 512 * 2**20

AskedPrecision = Literal["fp32", "fp16", "bf16", "int8", "int8-dynamic", "int4"]
"""What an export may be converted to: float types, int8 with calibration data or without, and
int4 weights."""


class ExportRequest(Frozen):
    """One export.

    Attributes:
        source: folder, hub id or file, as typed.
        target: name of the exporter.
        output: artifact folder; ``artifacts/<name of the source>`` when None.
        name: the artifact's name; that of the output folder when None.
        model: ``package.module:Factory`` where the source holds only weights.
        model_args: keyword arguments for the factory.
        inputs: the model's inputs in forward's order, for ``model``.
        dims: ranges of symbolic dims; those not named take the defaults.
        output_names: names of the outputs, in order.
        recipe: a Python file with ``model()`` and ``inputs(**dims)``.
        weights_key: dotted path to the state dict inside a training checkpoint.
        opset: ONNX opset; chosen for the model when None.
        precision: what to convert to; the source's own when None.
        calibration: inputs to quantise by: a ``.npz``, a ``.jsonl`` or a folder of ``.npz``.
        data: the user's own inputs, in the same forms, on which parity is proven too.
        metric: ``package.module:function`` of a task metric over ``data``; higher is better.
        max_drop: how much less than eager's the artifact's metric may be.
        options: what only this target knows, by name; see its exporter's options.
        tolerance: overrides the default for the precision.
        memory_budget: bytes that the largest checked size may need.
        seed: of every random input.
        keep_failed: folder for an export that did not pass.
        command: the command line as typed, for the report.
    """

    source: str
    target: str = "onnx"
    output: Path | None = None
    name: ArtifactName | None = None
    model: str | None = None
    model_args: dict[str, Any] = Field(default_factory=dict)
    inputs: tuple[TensorSpec, ...] = ()
    dims: dict[str, DimRange] = Field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    recipe: Path | None = None
    weights_key: str | None = None
    opset: int | None = Field(default=None, ge=18, le=25)
    precision: AskedPrecision | None = None
    calibration: Path | None = None
    data: Path | None = None
    metric: str | None = None
    max_drop: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    options: dict[str, str] = Field(default_factory=dict)
    tolerance: Tolerance | None = None
    memory_budget: int = Field(default=DEFAULT_MEMORY_BUDGET, ge=2**20)
    seed: int = Field(default=0, ge=0)
    keep_failed: Path | None = None
    command: str = "modelops export"


class ExportPlan(Frozen):
    """What an export would do: ``chain`` in order, ``details`` in the target's own terms.

    ``missing`` is what this machine lacks to do it.
    """

    source: str
    source_format: str
    target: str
    format: str
    output: str
    precision: str | None = None
    inputs: tuple[TensorSpec, ...] = ()
    dims: dict[str, DimRange] = Field(default_factory=dict)
    chain: tuple[str, ...]
    details: dict[str, Any] = Field(default_factory=dict)
    missing: tuple[str, ...] = ()


class ExportResult(Frozen):
    """A published artifact: where it is, what it is, and how it was proven."""

    path: Path
    version: int
    name: str
    format: str
    digest: str
    parity: Parity
    seconds: float
    report: Path
    notes: tuple[str, ...]
