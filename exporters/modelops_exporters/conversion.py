"""The step of an export in which the written float32 model becomes what was asked for."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from modelops.artifact.manifest import Tolerance
from modelops.errors import UsageError
from modelops.progress import Progress
from modelops.protocols import Runtime
from modelops.report.conversion import ConversionReport, SpeedRow
from modelops.requests import ExportRequest
from modelops.signature import Signature
from modelops_exporters.calibration import calibration_for, random_inputs
from modelops_exporters.eager import EagerRuntime
from modelops_exporters.inputs import PreparedInputs
from modelops_exporters.precision import precision_of
from modelops_exporters.prepared import Prepared
from modelops_exporters.quantize import Aim, Converted, convert_precision

_FORMATS = {"onnx"}
_NAMES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_TURNS = 3
_TURN_SECONDS = 0.03


@dataclass(frozen=True)
class Conversion:
    """What was converted, by which inputs, and the float32 model that it came from."""

    converted: Converted
    quantization: dict[str, Any]
    notes: tuple[str, ...]
    original: Path
    original_bytes: int


def asked_precision(request: ExportRequest) -> str | None:
    """Return the manifest's name of the precision asked for."""
    return None if request.precision is None else _NAMES.get(request.precision, request.precision)


def refuse_what_cannot_be(request: ExportRequest) -> None:
    """Refuse calibration data and options without the precision that they are for.

    Raises:
        UsageError: they contradict each other.
    """
    if request.precision is None and request.calibration is not None:
        raise UsageError("--calibration is for a conversion", hint="add --precision int8")
    if request.precision in (None, "fp32") and request.options and request.target in _FORMATS:
        raise UsageError(
            f"--option {min(request.options)} means nothing for --to {request.target} without "
            "--precision int8 or int4"
        )
    if request.precision in ("int8-dynamic", "int4") and request.calibration is not None:
        raise UsageError(
            f"--precision {request.precision} takes no calibration data",
            hint="--precision int8 does",
        )


def convert_written(
    request: ExportRequest,
    prepared: Prepared,
    signature: Signature,
    example: dict[str, int],
    nbytes: Callable[[dict[str, int]], int],
    model: Path,
    tolerance: Tolerance,
    aside: Path,
    progress: Progress,
) -> Conversion | None:
    """Convert ``model`` in place as ``request`` asks; a copy of what it was goes to ``aside``.

    Returns:
        What was done; None where the model is already as asked.

    Raises:
        UsageError: the source is not in float32.
        and what ``convert_precision`` raises.
    """
    asked, found = asked_precision(request), precision_of(prepared.model)
    if request.precision is None or asked == found:
        return None
    if found != "float32":
        raise UsageError(
            f"the model is in {found}, and is converted from float32 only",
            hint="make it float32 in its recipe or factory: model.float()",
        )
    for path in (model, model.with_name(f"{model.name}.data")):
        if path.exists():
            shutil.copyfile(path, aside / path.name)
    calibration = calibration_for(request, prepared, signature, example, nbytes)
    drawn = random_inputs(request, prepared, signature, example, offset=2)
    # The gate draws random inputs too, and so must the search.
    aim = Aim(signature.outputs, tolerance, (*calibration.inputs, *drawn[:2]))
    converted = convert_precision(
        model, request.precision, calibration.inputs, progress, request.options, aim=aim
    )
    details: dict[str, Any] = {"precision": request.precision, **converted.details}
    notes = converted.notes
    if request.precision in ("fp16", "bf16", "int8"):
        details["calibration"] = {
            "origin": calibration.origin,
            "items": calibration.items,
            "sha256": calibration.sha256,
        }
        notes = (f"calibrated on {calibration.items} items: {calibration.origin}", *notes)
    before = sum(p.stat().st_size for p in aside.iterdir())
    return Conversion(converted, details, notes, aside / model.name, before)


def cost(
    conversion: Conversion,
    model: Path,
    artifact: Runtime,
    original: Runtime,
    eager: EagerRuntime,
    maker: PreparedInputs,
    sizes: list[dict[str, int]],
    progress: Progress,
) -> ConversionReport:
    """Measure what the conversion gives: bytes, and time beside float32 and eager, by turns."""
    contenders: dict[str, Runtime] = {"eager": eager, "float32": original, "converted": artifact}
    rows = []
    for dims in sizes:
        progress("timing " + " ".join(f"{k}={v}" for k, v in dims.items()))
        inputs = maker.random(dims)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for runtime in contenders.values():
            runtime.run(inputs)
        for _ in range(_TURNS):
            for name, runtime in contenders.items():
                turn = 0.0
                while turn < _TURN_SECONDS:
                    started = time.perf_counter()
                    runtime.run(inputs)
                    times[name].append(time.perf_counter() - started)
                    turn += times[name][-1]
        middle = {name: float(np.median(found)) * 1e3 for name, found in times.items()}
        rows.append(
            SpeedRow(
                dims=dims,
                eager_ms=middle["eager"],
                float32_ms=middle["float32"],
                converted_ms=middle["converted"],
            )
        )
    after = sum(
        p.stat().st_size for p in (model, model.with_name(f"{model.name}.data")) if p.exists()
    )
    return ConversionReport(
        precision=conversion.converted.precision,
        method=conversion.quantization.get("method"),
        bytes_before=conversion.original_bytes,
        bytes_after=after,
        left_in_float=len(
            conversion.quantization.get("left_in_float")
            or conversion.quantization.get("kept_in_float32")
            or ()
        ),
        search=tuple(conversion.quantization.get("search", ())),
        speed=tuple(rows),
    )


def aside() -> TemporaryDirectory[str]:
    """Return a folder for the float32 model while the export lasts."""
    return TemporaryDirectory(prefix="modelops-")
