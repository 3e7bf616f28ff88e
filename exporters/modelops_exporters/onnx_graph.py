"""Putting the exporter's graph in order: names as asked, and nothing of the exporting machine."""

from __future__ import annotations

import re
from typing import Any

import onnx_ir as ir

from modelops import __version__
from modelops.signature import Signature


def tidy(model: ir.Model, signature: Signature) -> None:
    """Name inputs, outputs and dims as the signature does; drop every trace of the export.

    A value inside the graph that already has the name of an input or output is renamed first:
    two values of one name are an invalid model.
    """
    graph = model.graph
    _strip(model)
    _separate_outputs(graph)
    asked = [t.name for t in (*signature.inputs, *signature.outputs)]
    ends = [*graph.inputs, *graph.outputs]
    taken = {v.name: v for v in _values(model) if v.name}
    keep = {id(v) for v in ends}
    for name in asked:
        holder = taken.get(name)
        if holder is not None and id(holder) not in keep:
            holder.name = _fresh(f"{name}.inner", taken)
            taken[holder.name] = holder
    # Two steps, so that swapped names do not collide on the way.
    for position, value in enumerate(ends):
        value.name = _fresh(f"modelops.end.{position}", taken)
    for value, name in zip(ends, asked, strict=True):
        value.name = name
    _name_dims(model, signature)
    graph.name = "main_graph"
    model.producer_name, model.producer_version = "modelops", __version__


def _strip(model: ir.Model) -> None:
    # The exporter writes stack traces with absolute paths into every node.
    model.metadata_props.clear()
    model.doc_string = None
    owners: list[Any] = [model.graph, *model.functions.values()]
    for owner in owners:
        owner.metadata_props.clear()
        owner.doc_string = None
        for node in owner.all_nodes():
            node.metadata_props.clear()
            node.doc_string = None
    for value in _values(model):
        value.metadata_props.clear()
        value.doc_string = None


def _separate_outputs(graph: ir.Graph) -> None:
    """Give each output a value of its own: not an input, a weight, or another output."""
    seen: set[int] = {id(v) for v in graph.inputs} | {id(v) for v in graph.initializers.values()}
    for position, value in enumerate(graph.outputs):
        if id(value) in seen:
            node = ir.node("Identity", [value], name=f"modelops_output_{position}")
            copy = node.outputs[0]
            copy.name, copy.type, copy.shape = f"modelops.copy.{position}", value.type, value.shape
            graph.append(node)
            graph.outputs[position] = copy
            value = copy
        seen.add(id(value))


def _values(model: ir.Model) -> list[ir.Value]:
    graph = model.graph
    found = [*graph.inputs, *graph.initializers.values()]
    for node in graph.all_nodes():
        found += [v for v in node.outputs if v is not None]
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                found += [*attribute.as_graph().inputs, *attribute.as_graph().initializers.values()]
    return found


def _fresh(stem: str, taken: dict[str | None, ir.Value] | dict[str, ir.Value]) -> str:
    name, number = stem, 0
    while name in taken:
        number += 1
        name = f"{stem}.{number}"
    return name


def _name_dims(model: ir.Model, signature: Signature) -> None:
    symbols: dict[str, str] = {}
    for spec, value in zip(signature.inputs, model.graph.inputs, strict=True):
        for want, got in zip(spec.shape, value.shape or (), strict=True):
            if isinstance(want, str) and not isinstance(got, int) and got.value is not None:
                symbols[got.value] = want
    if not symbols:
        return
    spelled = re.compile("|".join(rf"\b{re.escape(s)}\b" for s in symbols))
    for value in _values(model):
        if value.shape is None:
            continue
        for axis, size in enumerate(value.shape):
            if not isinstance(size, int) and size.value is not None:
                value.shape[axis] = spelled.sub(lambda m: symbols[m[0]], size.value)
