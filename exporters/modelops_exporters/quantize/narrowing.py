"""Rewriting an ONNX graph from float32 to a narrower float type, node by node."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

import numpy as np
import onnx
import onnx_ir as ir

_SPELLED = {ir.DataType.FLOAT16: "tensor(float16)", ir.DataType.BFLOAT16: "tensor(bfloat16)"}

# Their output's dtype is said by an attribute or another input; a Cast after them costs nothing.
_OWN_DTYPE = {
    "Bernoulli", "CastLike", "ConstantOfShape", "DequantizeLinear", "DynamicQuantizeLinear",
    "EyeLike", "Multinomial", "QuantizeLinear", "RandomNormal", "RandomNormalLike",
    "RandomUniform", "RandomUniformLike", "Range",
}  # fmt: skip


def settle(model: ir.Model) -> None:
    """Give every node a name of its own and every value a dtype; constants become weights."""
    from onnx_ir.passes import common

    for step in (
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.ShapeInferencePass(),
    ):
        step(model)
    taken: set[str] = set()
    for number, node in enumerate(model.graph.all_nodes()):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}.{number}"
        taken.add(node.name)


def narrow(model: ir.Model, low: ir.DataType, kept: Collection[str]) -> list[str]:
    """Make ``low`` of every float32 tensor but those around the nodes named in ``kept``.

    Inputs and outputs of the model keep their dtype. A weight is stored once, however many nodes
    share it: as float32 where any of them is kept.

    Returns:
        The names of the nodes that ONNX does not define at ``low``, and which so stay too.
    """
    return _Narrowing(model, low, kept).run()


def takes(node: ir.Node, index: int, low: ir.DataType, opset: int) -> bool:
    """Whether ONNX defines input ``index`` of ``node`` at ``low``."""
    sides = _allowed(node.op_type, node.domain, opset, _SPELLED[low])
    return sides is not None and bool(sides[0]) and sides[0][min(index, len(sides[0]) - 1)]


def gives(node: ir.Node, index: int, low: ir.DataType, opset: int) -> bool:
    """Whether ONNX defines output ``index`` of ``node`` at ``low``."""
    sides = _allowed(node.op_type, node.domain, opset, _SPELLED[low])
    return sides is not None and bool(sides[1]) and sides[1][min(index, len(sides[1]) - 1)]


@cache
def _allowed(
    op_type: str, domain: str, opset: int, low: str
) -> tuple[tuple[bool, ...], tuple[bool, ...]] | None:
    try:
        schema = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return (
        tuple(low in formal.types for formal in schema.inputs),
        tuple(low in formal.types for formal in schema.outputs),
    )


class _Narrowing:
    def __init__(self, model: ir.Model, low: ir.DataType, kept: Collection[str]) -> None:
        self._graph = model.graph
        self._low = low
        self._kept = kept
        self._opset = model.graph.opset_imports[""]
        self._twins: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}
        self._names = {v.name for v in _values(model.graph)}
        self._undefined: list[str] = []

    def run(self) -> list[str]:
        nodes = list(self._graph)
        narrowed = {node for node in nodes if self._may_narrow(node)}
        for value in list(self._graph.initializers.values()):
            uses = value.uses()
            if value.dtype == ir.DataType.FLOAT and all(
                node in narrowed and takes(node, i, self._low, self._opset) for node, i in uses
            ):
                self._store_low(value)
        for node in nodes:
            if node in narrowed:
                self._to_low(node)
            else:
                self._to_float(node)
        self._restore_outputs()
        return self._undefined

    def _may_narrow(self, node: ir.Node) -> bool:
        values = [*node.inputs, *node.outputs]
        if not any(v is not None and v.dtype == ir.DataType.FLOAT for v in values):
            return False
        if node.name in self._kept or node.op_type in _OWN_DTYPE:
            return False
        if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
               for a in node.attributes.values()):  # fmt: skip
            self._undefined.append(str(node.name))
            return False
        defined = any(
            v.dtype == ir.DataType.FLOAT and gives(node, i, self._low, self._opset)
            for i, v in enumerate(node.outputs)
        ) or any(
            v is not None
            and v.dtype == ir.DataType.FLOAT
            and takes(node, i, self._low, self._opset)
            for i, v in enumerate(node.inputs)
        )
        if not defined:
            self._undefined.append(str(node.name))
        return defined

    def _store_low(self, value: ir.Value) -> None:
        tensor = value.const_value
        if tensor is None:
            return
        with np.errstate(over="ignore"):
            narrowed = tensor.numpy().astype(self._low.numpy())
        value.const_value = ir.Tensor(narrowed, dtype=self._low, name=value.name)
        value.dtype = self._low

    def _to_low(self, node: ir.Node) -> None:
        if node.op_type == "Cast":
            if node.attributes["to"].as_int() == ir.DataType.FLOAT:
                node.attributes["to"] = ir.AttrInt64("to", int(self._low))
                node.outputs[0].dtype = self._low
            return
        for i, value in enumerate(node.inputs):
            if value is None:
                continue
            if takes(node, i, self._low, self._opset):
                if value.dtype == ir.DataType.FLOAT:
                    node.replace_input_with(i, self._twin(value, self._low))
            elif value.dtype == self._low:
                node.replace_input_with(i, self._twin(value, ir.DataType.FLOAT))
        for i, value in enumerate(node.outputs):
            if value.dtype == ir.DataType.FLOAT and gives(node, i, self._low, self._opset):
                value.dtype = self._low

    def _to_float(self, node: ir.Node) -> None:
        inner = [n for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH
                 for n in a.as_graph().all_nodes()]  # fmt: skip
        for user in (node, *inner):
            for i, value in enumerate(user.inputs):
                if value is not None and value.dtype == self._low and self._was_float(value):
                    user.replace_input_with(i, self._twin(value, ir.DataType.FLOAT))

    def _was_float(self, value: ir.Value) -> bool:
        # A float32 model has no other tensors of the narrow type than those made here.
        return not value.is_graph_input()

    def _twin(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """Return ``value`` at ``dtype``: one Cast, however many nodes need it."""
        twin = self._twins.get((value, dtype))
        if twin is None:
            twin = self._cast(value, dtype, f"{value.name}.{dtype.name.lower()}")
            self._twins[value, dtype] = twin
        return twin

    def _cast(self, value: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
        while name in self._names:
            name += "_"
        self._names.add(name)
        node = ir.node("Cast", [value], {"to": int(dtype)}, name=f"{name}.cast")
        twin = node.outputs[0]
        twin.name, twin.dtype, twin.shape = name, dtype, value.shape
        producer = value.producer()
        if producer is not None:
            self._graph.insert_after(producer, node)
        else:
            self._graph.insert_before(self._graph[0], node)
        return twin

    def _restore_outputs(self) -> None:
        for position, value in enumerate(self._graph.outputs):
            if value.dtype != self._low or value.is_graph_input():
                continue
            name = value.name
            value.name = f"{name}.{self._low.name.lower()}"
            wide = self._cast(value, ir.DataType.FLOAT, f"{name}.float")
            wide.name = name
            self._graph.outputs[position] = wide


def _values(graph: ir.Graph) -> list[ir.Value]:
    return [
        *graph.inputs,
        *graph.initializers.values(),
        *(v for node in graph.all_nodes() for v in node.outputs),
    ]
