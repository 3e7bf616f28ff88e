"""Where eager and a written ONNX graph part: the first tensor inside that is off, by name."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from modelops.artifact.manifest import Manifest, Tolerance
from modelops.parity.inputs import Arrays
from modelops.signature import Signature
from modelops_exporters.tensors import to_numpy, to_torch
from modelops_exporters.user_code import line_in

Array = npt.NDArray[Any]
_LOG = logging.getLogger(__name__)

# An error is a node's own where it is this many times what reached the node.
_GROWTH = 8.0
_MOST_BYTES = 2 * 2**30


@dataclass(frozen=True)
class Parting:
    """The first tensor that is off: of which node of the trace, of the graph, of which line."""

    layer: str
    node: str
    line: str | None
    error: float
    reached: float
    what: str

    def __str__(self) -> str:
        where = f" ({self.line})" if self.line else ""
        return f"first apart at {self.layer}, ONNX node {self.node}{where}: {self.what}"


def locate(program: Any, folder: Path, manifest: Manifest, inputs: Arrays) -> Parting | None:
    """Return the first layer whose result is off on ``inputs``; None where none can be told.

    Args:
        program: the decomposed ExportedProgram that the graph was translated from.
        folder: where the graph lies.
        manifest: its draft: signature and tolerance.
        inputs: those at which the outputs differ.
    """
    import onnx

    model = onnx.load(folder / manifest.entry, load_external_data=False)
    producers = {name: node for node in model.graph.node for name in node.output if name}
    names = _names(program, manifest.signature, set(producers))
    values = _run_exposed(model, folder, inputs, sorted(set(names.values())))
    if values is None:
        return None
    errors: dict[str, float] = {}
    late: Parting | None = None
    for node, expected in _eager(program, inputs):
        reached = max((errors.get(a.name, 0.0) for a in node.all_input_nodes), default=0.0)
        found = values.get(names.get(node.name, ""))
        if found is None or found.shape != expected.shape or not expected.size:
            errors[node.name] = reached  # what is not seen passes on what reached it
            continue
        error, what = _apart(expected, found, manifest.parity.tolerance)
        errors[node.name] = max(error, 0.0)
        if what is None:
            continue
        onnx_node = producers[names[node.name]]
        parting = Parting(
            layer=f"{node.name} ({node.target})",
            node=f"{onnx_node.name or onnx_node.output[0]} ({onnx_node.op_type})",
            line=line_in(node.meta.get("stack_trace") or ""),
            error=error,
            reached=reached,
            what=what,
        )
        if error > _GROWTH * reached:
            return parting
        late = late or parting
    return late


def _names(program: Any, signature: Signature, there: set[str]) -> dict[str, str]:
    """Map nodes of the trace to values of the graph, which are called alike."""
    names = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            # A value inside that had the name of an input or output was renamed.
            inner = f"{node.name}.inner"
            names[node.name] = inner if inner in there else node.name
    outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]
    last = outputs[len(outputs) - len(signature.outputs) :]
    names |= {node.name: t.name for node, t in zip(last, signature.outputs, strict=True)}
    return {layer: value for layer, value in names.items() if value in there}


def _run_exposed(model: Any, folder: Path, inputs: Arrays, names: list[str]) -> Arrays | None:
    import onnx
    import onnxruntime as ort

    outputs = {o.name for o in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in outputs)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(
        "session.model_external_initializers_file_folder_path", str(folder)
    )
    try:
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run(names, dict(inputs))
    except Exception as error:  # noqa: BLE001  ORT's errors share no base
        # Exposing can fail where the graph itself does; parity stands, and nothing more is told.
        _LOG.debug("the graph does not run with its inner values exposed: %s", error)
        return None
    return dict(zip(names, found, strict=True))


def _eager(program: Any, inputs: Arrays) -> Iterator[tuple[Any, Array]]:
    """Run the trace node by node; yield each node of one tensor with its value."""
    signature = program.graph_signature
    users = iter(inputs.values())
    stored = {**program.state_dict, **program.constants}
    sources = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    interpreter = torch.fx.Interpreter(program.graph_module)
    interpreter.env = {}
    nbytes = 0
    with torch.no_grad():
        for node in program.graph.nodes:
            if node.op == "placeholder":
                source = sources.get(node.name)
                value = stored[source] if source is not None else to_torch(next(users))
            elif node.op == "output":
                return
            else:
                value = interpreter.run_node(node)
            interpreter.env[node] = value
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                nbytes += value.nbytes
                if nbytes > _MOST_BYTES:
                    return
                yield node, to_numpy(value)


def _apart(expected: Array, found: Array, tolerance: Tolerance) -> tuple[float, str | None]:
    """Return the error for the tensor's size, and what is wrong where it is beyond tolerance."""
    if expected.dtype.kind in "biu":
        wrong = int(np.count_nonzero(expected != found))
        return (float("inf") if wrong else 0.0), (
            f"{wrong} of {expected.size} values differ" if wrong else None
        )
    e, a = expected.astype(np.float64), found.astype(np.float64)
    odd = int((~np.isfinite(a) & np.isfinite(e)).sum())
    if odd:
        kind = "NaN" if np.isnan(a[np.isfinite(e)]).any() else "inf"
        return float("inf"), f"{odd} of {e.size} values are {kind} where eager is finite"
    if np.isnan(e).any():
        return float("inf"), "eager itself gives NaN from here on"
    finite = np.isfinite(e)
    gap = np.where(finite, np.abs(np.where(finite, a, 0) - np.where(finite, e, 0)), 0.0)
    scale = float(np.sqrt(np.mean(e[finite] ** 2))) if finite.any() else 1.0
    error = float(gap.max()) / (scale or 1.0)
    allowed = tolerance.atol * (scale or 1.0) + tolerance.rtol * np.where(finite, np.abs(e), 0)
    if not (gap > allowed).any():
        return error, None
    return error, f"off by up to {gap.max():.3g} (RMS {scale:.3g})"
