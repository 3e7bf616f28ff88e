"""Weights as int8 with a scale for each slice, in standard ONNX; a tied one once."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

Floats = npt.NDArray[np.float32]

_LEAST_ELEMENTS = 1024
# Which input of each operator the weight is.
_WEIGHT_INPUT = {"MatMul": 1, "Gemm": 1, "Conv": 1, "ConvTranspose": 1, "Gather": 0, "Transpose": 0}


def narrow_weights(model: ir.Model, nodes: Collection[str] | None = None) -> list[str]:
    """Store the float32 weights of ``nodes`` (all, where None) as int8; compute stays float32.

    A table that rows are gathered from stays int8 until after the Gather, so that a lookup never
    widens the whole table; any other use sees the weight through DequantizeLinear.

    Returns:
        The names of the weights.
    """
    graph = model.graph
    done = []
    for value in list(graph.initializers.values()):
        uses = list(value.uses())
        tensor = value.const_value
        if tensor is None or value.dtype != ir.DataType.FLOAT or len(tensor.shape) < 2:
            continue
        if tensor.size < _LEAST_ELEMENTS or not uses:
            continue
        if not all(_is_weight(node, index) for node, index in uses):
            continue
        if nodes is not None and not any(node.name in nodes for node, _ in uses):
            continue
        axis = _axis([node for node, _ in uses], tensor.numpy())
        _store(graph, value, tensor.numpy(), axis, uses)
        done.append(str(value.name))
    return done


def _is_weight(node: ir.Node, index: int) -> bool:
    if _WEIGHT_INPUT.get(node.op_type) != index or node.domain not in ("", "ai.onnx"):
        return False
    return node.op_type != "Gather" or _int(node, "axis", 0) == 0


def _axis(nodes: list[ir.Node], array: Floats) -> int:
    """Return the axis along which each slice gets a scale: a table's rows, else what errs least.

    Some layers have outliers in a few inputs rather than a few outputs, and a scale per output,
    as an int8 kernel must have it, would spend all eight bits on them.
    """
    if any(node.op_type == "Gather" for node in nodes):
        return 0
    if any(node.op_type.startswith("Conv") for node in nodes):
        return int(nodes[0].op_type == "ConvTranspose")

    def error(axis: int) -> float:
        small, scales = _rounded(array, axis)
        return float(np.square(small * _spread(scales, axis, array.ndim) - array).sum())

    return min((array.ndim - 1, array.ndim - 2), key=error)


def _rounded(array: Floats, axis: int) -> tuple[npt.NDArray[np.int8], Floats]:
    """Return ``array`` as int8, symmetric, and the scale of each slice along ``axis``."""
    largest = np.abs(array).max(axis=tuple(a for a in range(array.ndim) if a != axis))
    # The scale of a slice of zeros is free; one keeps it from dividing by zero.
    scales = np.where(largest > 0, largest / 127.0, 1.0).astype(np.float32)
    small = np.clip(np.rint(array / _spread(scales, axis, array.ndim)), -127, 127)
    return small.astype(np.int8), scales


def _spread(scales: Floats, axis: int, rank: int) -> Floats:
    return scales.reshape([-1 if a == axis else 1 for a in range(rank)])


def _int(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _store(
    graph: ir.Graph,
    value: ir.Value,
    array: Floats,
    axis: int,
    uses: Sequence[tuple[ir.Node, int]],
) -> None:
    small, scales = _rounded(array, axis)
    name = str(value.name)
    weight = _constant(graph, f"{name}.int8", small)
    scale = _constant(graph, f"{name}.scale", scales)
    wide: ir.Value | None = None
    for node, index in uses:
        if node.op_type == "Gather":
            _gather(graph, node, weight, scale, array.ndim)
            continue
        if wide is None:
            wide = _insert(graph, graph[0], "DequantizeLinear", [weight, scale], f"{name}.wide",
                           {"axis": axis})  # fmt: skip
            wide.dtype, wide.shape = ir.DataType.FLOAT, value.shape
        node.replace_input_with(index, wide)
    del graph.initializers[name]


def _gather(graph: ir.Graph, node: ir.Node, weight: ir.Value, scale: ir.Value, rank: int) -> None:
    """Look up int8 rows and their scales, and multiply."""
    indices = node.inputs[1]
    out = node.outputs[0]
    name, shape = str(out.name), out.shape
    rows = _insert(graph, node, "Gather", [weight, indices], f"{name}.rows", {"axis": 0})
    cast = _insert(graph, node, "Cast", [rows], f"{name}.cast", {"to": int(ir.DataType.FLOAT)})
    found = _insert(graph, node, "Gather", [scale, indices], f"{name}.scales", {"axis": 0})
    axes = _constant(graph, f"{name}.axes", np.arange(-(rank - 1), 0, dtype=np.int64))
    each = _insert(graph, node, "Unsqueeze", [found, axes], f"{name}.each", {})
    product = _insert(graph, node, "Mul", [cast, each], f"{name}.product", {})
    out.replace_all_uses_with(product, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    out.name = None
    product.name, product.dtype, product.shape = name, ir.DataType.FLOAT, shape


def _insert(
    graph: ir.Graph,
    before: ir.Node,
    op_type: str,
    inputs: list[ir.Value | None],
    name: str,
    attributes: dict[str, int],
) -> ir.Value:
    node = ir.node(op_type, inputs, attributes, name=f"{name}.{op_type}")
    node.outputs[0].name = name
    graph.insert_before(before, node)
    return node.outputs[0]


def _constant(graph: ir.Graph, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.Tensor(array, name=name))
    value.dtype, value.shape = value.const_value.dtype, value.const_value.shape  # type: ignore[union-attr,assignment]
    graph.register_initializer(value)
    return value
