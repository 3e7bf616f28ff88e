"""One written ONNX model to another precision, in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelops.errors import UsageError
from modelops.parity.inputs import Arrays
from modelops.progress import Progress

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
    elsewhere: bool = False,
) -> Converted:
    """Rewrite the float32 ONNX file ``model``, and its ``.data`` beside it, to ``precision``.

    Args:
        model: the file; replaced only when the new one is whole.
        precision: fp16 or bf16.
        inputs: batches such as users send, by input name, which the conversion is tried on.
        progress: told of each step.
        options: what only this precision knows, by name.
        elsewhere: another runtime than ONNX Runtime's CPU provider will run and prove it.

    Raises:
        UsageError: no such precision or option.
        VerificationError: the converted graph gives NaN or inf.
        MissingEnvironmentError: the runtime here cannot run the converted graph.
    """
    import onnx_ir as ir

    from modelops_exporters.quantize.float_types import to_float_type

    if precision not in FLOAT_TYPES:
        raise UsageError(f"an ONNX model is not converted to {precision}")
    if options:
        raise UsageError(f"--option {min(options)} means nothing for --precision {precision}")
    low = ir.DataType[FLOAT_TYPES[precision].upper()]
    data = model.with_name(f"{model.name}.data")
    work = model.with_name("converting")
    work.mkdir()
    try:
        target = work / model.name
        kept = to_float_type(model, target, low, inputs, progress, elsewhere=elsewhere)
        data.unlink(missing_ok=True)
        for path in work.iterdir():
            path.replace(model.with_name(path.name))
    finally:
        for path in work.iterdir():
            path.unlink()
        work.rmdir()
    return Converted(
        FLOAT_TYPES[precision], _notes(kept), {"kept_in_float32": kept} if kept else {}
    )


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
