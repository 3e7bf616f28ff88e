"""One written ONNX model to another precision, in place."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelops.errors import UsageError
from modelops.parity.inputs import Arrays
from modelops.progress import Progress
from modelops_exporters.quantize.search import Aim

_OPTIONS: dict[str, set[str]] = {
    "fp16": set(),
    "bf16": set(),
    "int8": {"calibrate", "activations", "reduce_range"},
    "int8-dynamic": set(),
    "int4": {"block_size"},
}
FLOAT_TYPES = {"fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Converted:
    """What a conversion made of a model: the precision found in it, and what stayed as it was."""

    precision: str
    notes: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


def convert_precision(
    model: Path,
    precision: str,
    inputs: Sequence[Arrays],
    progress: Progress,
    options: Mapping[str, str] | None = None,
    *,
    aim: Aim | None = None,
    elsewhere: bool = False,
) -> Converted:
    """Rewrite the float32 ONNX file ``model``, and its ``.data`` beside it, to ``precision``.

    Args:
        model: the file; replaced only when the new one is whole.
        precision: fp16, bf16, int8, int8-dynamic or int4.
        inputs: batches such as users send, by input name, which the conversion is tried on.
        progress: told of each step.
        options: what only this precision knows, by name.
        aim: what int8 is searched towards; needed for int8 alone.
        elsewhere: another runtime than ONNX Runtime's CPU provider will run and prove it.

    Raises:
        UsageError: no such precision or option.
        ExportError: the model has nothing to convert.
        VerificationError: the converted graph gives NaN or inf.
        MissingEnvironmentError: the runtime here cannot run the converted graph.
    """
    given = options or {}
    if precision not in _OPTIONS:
        raise UsageError(f"an ONNX model is not converted to {precision}")
    if unknown := given.keys() - _OPTIONS[precision]:
        known = ", ".join(sorted(_OPTIONS[precision])) or "none"
        raise UsageError(
            f"--option {min(unknown)} means nothing for --precision {precision}",
            hint=f"its options: {known}",
        )
    work = model.with_name("converting")
    work.mkdir()
    try:
        target = work / model.name
        converted = _convert(model, target, precision, inputs, progress, given, aim, elsewhere)
        model.with_name(f"{model.name}.data").unlink(missing_ok=True)
        for path in (target, target.with_name(f"{target.name}.data")):
            if path.exists() and path.stat().st_size:
                path.replace(model.with_name(path.name))
    finally:
        shutil.rmtree(work)
    return converted


def _convert(
    source: Path,
    target: Path,
    precision: str,
    inputs: Sequence[Arrays],
    progress: Progress,
    options: Mapping[str, str],
    aim: Aim | None,
    elsewhere: bool,
) -> Converted:
    from modelops_exporters.quantize import int8

    if precision in FLOAT_TYPES:
        import onnx_ir as ir

        from modelops_exporters.quantize.float_types import to_float_type

        name = FLOAT_TYPES[precision]
        low = ir.DataType[name.upper()]
        kept = to_float_type(source, target, low, inputs, progress, elsewhere=elsewhere)
        return Converted(name, _notes(kept), {"kept_in_float32": kept} if kept else {})
    if precision == "int8-dynamic":
        return Converted(precision, (), int8.dynamic(source, target, progress))
    if precision == "int4":
        return Converted(precision, (), int8.int4(source, target, options, progress))
    if aim is None:
        raise UsageError("int8 needs to know what its outputs may differ by")
    details = int8.static(source, target, inputs, aim, options, progress)
    left = details["left_in_float"]
    notes = [
        f"left in float, since the outputs do not bear them in int8: {_some(list(left))} "
        f"({len(left)} of {details['nodes']} nodes; their weights are int8)"
    ]
    return Converted(precision, tuple(notes) if left else (), details)


def _notes(kept: Mapping[str, str]) -> tuple[str, ...]:
    by_reason: dict[str, list[str]] = {}
    for node, why in kept.items():
        by_reason.setdefault(why, []).append(node)
    return tuple(
        f"kept in float32: {_some(nodes)}, since {why}" for why, nodes in by_reason.items()
    )


def _some(nodes: Sequence[str]) -> str:
    shown = ", ".join(nodes[:3])
    return shown if len(nodes) <= 3 else f"{shown} and {len(nodes) - 3} more"
