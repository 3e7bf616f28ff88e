"""fp16 and bf16: all of the graph that the type can hold, found by running it on real inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from modelops.errors import MissingEnvironmentError, VerificationError
from modelops.parity.inputs import Arrays
from modelops.progress import Progress
from modelops_exporters.quantize.narrowing import narrow, settle
from modelops_exporters.quantize.ranges import Range, ranges, session_of

_LARGEST = {ir.DataType.FLOAT16: 65504.0, ir.DataType.BFLOAT16: 3.3895313892515355e38}
# Calibration sees some inputs, users send others: a tensor may grow fourfold before it overflows.
# bfloat16 has float32's own range, where only constants are near the end of it.
_HEADROOM = {ir.DataType.FLOAT16: 4.0, ir.DataType.BFLOAT16: 1.0}
_CARRIES = {
    "Add", "Clip", "Expand", "Flatten", "Identity", "Max", "Reshape", "Sqrt", "Squeeze",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_ROUNDS = 8

Kept = dict[str, str]
"""Why each node that stays in float32 does, by the node's name."""


def to_float_type(
    source: Path,
    target: Path,
    low: ir.DataType,
    inputs: Sequence[Arrays],
    progress: Progress,
    *,
    elsewhere: bool = False,
) -> Kept:
    """Write ``source`` at the float type ``low`` to ``target``; inputs and outputs stay float32.

    Callers send and get what eager PyTorch takes and gives, whatever the graph computes in.
    With ``elsewhere`` another runtime will run it: one that this machine lacks kernels for is
    written all the same, and its proof is that runtime's.

    Raises:
        VerificationError: NaN or inf appears at ``low``, whatever is kept in float32.
        MissingEnvironmentError: ONNX Runtime cannot run the graph here.
    """
    name = low.name.lower()
    progress(f"looking for what {name} cannot hold, on {len(inputs)} inputs")
    model = ir.load(source)
    settle(model)
    named = target.with_name(f".{target.name}.settled")
    data = f"{named.name}.data"
    try:
        ir.save(model, named, external_data=data, size_threshold_bytes=1024)
        floats = [v.name for v in _floats(model.graph)]
        wide = ranges(named, [n for n in floats if n], inputs)
    finally:
        named.unlink(missing_ok=True)
        named.with_name(data).unlink(missing_ok=True)
    kept = _cannot_hold(model.graph, low, wide)
    for _ in range(_ROUNDS):
        model = ir.load(source)
        settle(model)
        undefined = narrow(model, low, kept)
        _save(model, target)
        try:
            broken = _broken(target, model.graph, wide, inputs)
        except MissingEnvironmentError:
            if not elsewhere:
                raise
            broken = None
        if broken is None:
            nowhere = f"ONNX does not define it at {name}"
            return kept | dict.fromkeys(undefined, nowhere)
        if broken in kept:
            break
        progress(f"{broken} gives NaN or inf at {name}: kept in float32")
        kept[broken] = f"it gives NaN or inf at {name}"
    raise VerificationError(
        f"at {name} the graph gives NaN or inf where float32 is finite, and keeping nodes in "
        f"float32 does not mend it (last {broken})",
        hint="--precision bf16 has float32's range, where the runtime computes in it",
    )


def _save(model: ir.Model, target: Path) -> None:
    ir.save(model, target, external_data=f"{target.name}.data", size_threshold_bytes=1024)


def _floats(graph: ir.Graph) -> list[ir.Value]:
    return [v for node in graph for v in node.outputs if v.dtype == ir.DataType.FLOAT and v.name]


def _cannot_hold(graph: ir.Graph, low: ir.DataType, seen: dict[str, Range]) -> Kept:
    limit = _LARGEST[low] / _HEADROOM[low]
    name = low.name.lower()
    why: dict[ir.Value | None, str] = {}
    for value in graph.initializers.values():
        if value.dtype == ir.DataType.FLOAT and value.const_value is not None:
            array = value.const_value.numpy()
            found = Range()
            found.add(array)
            # A weight is what it is and needs no headroom.
            if found.largest > _LARGEST[low]:
                why[value] = f"a constant of magnitude {found.largest:.3g} is beyond {name}"
            elif array.size == 1 and array.item() and not array.astype(low.numpy()).item():
                why[value] = f"the constant {array.item():.3g} is zero in {name}"
    for value in _floats(graph):
        found = seen.get(str(value.name), Range())
        if found.largest > limit:
            why[value] = f"a value reaches {found.largest:.3g}, {name} ends at {_LARGEST[low]:.3g}"
    kept: Kept = {}
    for node in graph:
        reason = next((why[v] for v in (*node.inputs, *node.outputs) if v in why), None)
        if reason is None:
            continue
        kept[str(node.name)] = reason
        # An epsilon guards against zero wherever what it was added to is carried.
        if "zero in" in reason and node.op_type in _CARRIES:
            for out in node.outputs:
                why.setdefault(out, reason)
    return kept


def _broken(
    target: Path, graph: ir.Graph, wide: dict[str, Range], inputs: Sequence[Arrays]
) -> str | None:
    """Return the first node that is not finite where float32 was, or None."""
    session = session_of(target)
    outputs = [o.name for o in session.get_outputs()]
    finite = True
    for feed in inputs:
        for name, values in zip(outputs, session.run(outputs, dict(feed)), strict=True):
            if values.dtype.kind == "f" and wide.get(name, Range()).finite:
                finite &= bool(np.isfinite(values).all())
    if finite:
        return None
    nodes: list[tuple[ir.Node, Any]] = [
        (node, v.name) for node in graph for v in node.outputs if v.name in wide
    ]
    found = ranges(target, [name for _, name in nodes], inputs)
    for node, name in nodes:
        if not found[name].finite and wide[name].finite:
            return str(node.name)
    return "the outputs' own Casts"
