"""int8 by ONNX Runtime's quantiser: static (QDQ, calibrated), dynamic; and int4 weights."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from modelops.errors import ExportError, UsageError
from modelops.parity.inputs import Arrays
from modelops.progress import Progress
from modelops_exporters.quantize.search import Aim, Judge, leave_out
from modelops_exporters.quantize.weights import narrow_weights

_METHODS = {"minmax": "MinMax", "entropy": "Entropy", "percentile": "Percentile"}
_WITH_WEIGHTS = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
# In a convolutional net these pass int8 on, which saves going to float and back between layers.
_BETWEEN_CONVS = {"Add", "AveragePool", "Concat", "GlobalAveragePool", "MaxPool"}
_INLINE_BYTES = 1024
_BLOCK = 128


def static(
    source: Path,
    target: Path,
    inputs: Sequence[Arrays],
    aim: Aim,
    options: Mapping[str, str],
    progress: Progress,
) -> dict[str, Any]:
    """Write ``source`` with int8 weights, and int8 activations wherever the outputs bear it.

    Weights are symmetric with a scale per channel. A node left in float keeps int8 weights.

    Raises:
        ExportError: the model has nothing that int8 would change.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    method = _choice(options, "calibrate", _METHODS)
    activations = _choice(options, "activations", {"uint8": "QUInt8", "int8": "QInt8"})
    unsigned = activations == "QUInt8"
    prepared = _preprocess(source, target.parent)
    tables = onnx.load(prepared)
    nodes = _candidates(tables.graph)
    if not nodes and not any(n.op_type == "Gather" for n in tables.graph.node):
        raise ExportError("the model has no Conv, Gemm or MatMul with weights to quantise")
    op_types = sorted({n.op_type for n in tables.graph.node if n.name in set(nodes)})
    progress(f"calibrating {len(nodes)} nodes by {method} on {len(inputs)} batches")
    found = _calibrate(prepared, op_types, method, inputs) if nodes else None

    def build(kept: Sequence[str]) -> Path:
        proto = onnx.load(prepared)
        if kept:
            with _quiet():
                quantiser = QDQQuantizer(
                    proto,
                    per_channel=True,
                    reduce_range=options.get("reduce_range") == "true",
                    weight_qType=QuantType.QInt8,
                    activation_qType=QuantType.QUInt8 if unsigned else QuantType.QInt8,
                    tensors_range=found,
                    nodes_to_quantize=list(kept),
                    nodes_to_exclude=[],
                    op_types_to_quantize=op_types,
                    extra_options={"ActivationSymmetric": not unsigned, "WeightSymmetric": True},
                )
                quantiser.quantize_model()
            proto = quantiser.model.model
        model = ir.from_proto(_by_blocks(proto, 8, _BLOCK))
        narrow_weights(model)
        return _save(model, target)

    left, attempts, effects = leave_out(nodes, build, Judge(source, aim), progress)
    return {
        "method": f"static QDQ, {method}, {'uint8' if unsigned else 'int8'} activations, int8 "
        "weights per channel; in blocks of 128 where activations stay float",
        "nodes": len(nodes),
        "left_in_float": {n: round(effects[n], 6) for n in left},
        "search": [asdict(a) for a in attempts],
        "scales": _scales(target),
    }


def dynamic(source: Path, target: Path, progress: Progress) -> dict[str, Any]:
    """Write ``source`` with int8 weights, activations quantised as they come at run time."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    prepared = _preprocess(source, target.parent)
    progress("quantising weights, activations at run time")
    with _quiet():
        quantize_dynamic(
            prepared,
            target,
            # Not its own list: that takes ONNX's Attention for another operator of that name.
            op_types_to_quantize=["Conv", "Gemm", "LSTM", "MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            extra_options={"MatMulConstBOnly": True},
        )
    model = ir.load(target)
    narrow_weights(model)
    _save(model, target)
    return {"method": "dynamic, int8 weights per channel", "scales": _scales(target)}


def int4(
    source: Path, target: Path, options: Mapping[str, str], progress: Progress
) -> dict[str, Any]:
    """Write ``source`` with the weights of each MatMul in four bits, by blocks along its input.

    Tables are int8 by row: four bits there cost more accuracy than they save.
    """
    text = options.get("block_size", "32")
    if text not in ("16", "32", "64", "128", "256"):
        raise UsageError(f"--option block_size={text}: 16, 32, 64, 128 or 256")
    prepared = _preprocess(source, target.parent)
    progress(f"quantising weights to four bits, blocks of {text}")
    model = ir.from_proto(_by_blocks(onnx.load(prepared), 4, int(text)))
    count = sum(node.op_type == "MatMulNBits" for node in model.graph)
    if not count:
        raise ExportError("the model has no MatMul with weights that four bits could hold")
    narrow_weights(model)
    _save(model, target)
    return {"method": f"MatMulNBits, 4 bits, blocks of {text}", "nodes": count}


def _by_blocks(proto: onnx.ModelProto, bits: int, block: int) -> onnx.ModelProto:
    """Return ``proto`` with the float weights of each MatMul in blocks along its input.

    A weight far from all others then costs accuracy in its own block alone, where a scale for
    each output would cost it the whole output.
    """
    with _quiet():
        from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

        quantiser = MatMulNBitsQuantizer(proto, bits=bits, block_size=block, is_symmetric=True)
        quantiser.process()
    found: onnx.ModelProto = quantiser.model.model
    return found


def _choice(options: Mapping[str, str], name: str, known: Mapping[str, str]) -> str:
    text = options.get(name, next(iter(known)))
    if text not in known:
        raise UsageError(f"--option {name}={text}: one of {', '.join(known)}")
    return known[text]


def _preprocess(source: Path, folder: Path) -> Path:
    """Fold constants and BatchNorms, and infer shapes; where a weight is tied, fold nothing."""
    from onnxruntime.quantization.shape_inference import quant_pre_process

    graph = onnx.load(source, load_external_data=False).graph
    large = {i.name for i in graph.initializer if len(i.dims) >= 2}
    uses: dict[str, int] = {}
    for node in graph.node:
        for name in set(node.input) & large:
            uses[name] = uses.get(name, 0) + 1
    target = folder / "prepared.onnx"
    with _quiet():
        quant_pre_process(
            source,
            target,
            # Folding would write a tied weight, transposed for its second use, a second time.
            skip_optimization=any(count > 1 for count in uses.values()),
            skip_symbolic_shape=True,
            save_as_external_data=True,
            all_tensors_to_one_file=True,
            external_data_location="prepared.onnx.data",
        )
    return target


def _candidates(graph: onnx.GraphProto) -> list[str]:
    weights = {i.name for i in graph.initializer}
    convolves = any(n.op_type == "Conv" for n in graph.node)
    return [
        n.name
        for n in graph.node
        if (n.op_type in _WITH_WEIGHTS and len(n.input) > 1 and n.input[1] in weights)
        or (convolves and n.op_type in _BETWEEN_CONVS)
    ]


def _calibrate(model: Path, op_types: list[str], method: str, inputs: Sequence[Arrays]) -> Any:
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import CalibrationDataReader, create_calibrator

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self._feeds = iter(inputs)

        def get_next(self) -> Arrays | None:
            return next(self._feeds, None)

    augmented = model.with_name("augmented.onnx")
    with _quiet():
        calibrator = create_calibrator(
            model, op_types, str(augmented), CalibrationMethod[method], True
        )
        calibrator.collect_data(Reader())
        return calibrator.compute_data()


def _save(model: ir.Model, target: Path) -> Path:
    from onnx_ir.passes import common

    common.RemoveUnusedNodesPass()(model)
    model.producer_name, model.producer_version = "modelops", None
    model.metadata_props.clear()
    ir.save(model, target, external_data=f"{target.name}.data", size_threshold_bytes=_INLINE_BYTES)
    return target


def _scales(model: Path) -> int:
    graph = onnx.load(model, load_external_data=False).graph
    return sum("scale" in i.name for i in graph.initializer)


@contextmanager
def _quiet() -> Iterator[None]:
    # The quantisers advise pre-processing even where it was done, tell of each node, and set up
    # logging for the whole process.
    root = logging.getLogger()
    handlers, disabled = list(root.handlers), root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
        root.handlers[:] = handlers
