"""How much memory one run needs at given sizes, read off the traced graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from modelops.signature import Signature


def memory_estimate(program: Any, signature: Signature) -> Callable[[dict[str, int]], int]:
    """Return a function from sizes to bytes: the most that is alive at once in one run.

    Counts every intermediate of the traced graph from where it is made to its last use, and the
    scores of each attention, which most runtimes write out. Weights are not counted.
    """
    symbols = _symbol_of_dim(program, signature)
    order = [n for n in program.graph.nodes if n.op in ("placeholder", "call_function")]
    kept = set(program.graph_signature.user_inputs)
    last_use = {a.name: i for i, n in enumerate(order) for a in n.all_input_nodes}
    sizes: dict[sympy.Expr, None] = {}
    steps: list[tuple[str, sympy.Expr, sympy.Expr]] = []
    for node in order:
        if node.op == "placeholder" and node.name not in kept:
            continue
        own, scratch = _nbytes(node.meta.get("val")), _scores(node)
        sizes |= {own: None, scratch: None}
        steps.append((node.name, own, scratch))

    def estimate(dims: dict[str, int]) -> int:
        known = {symbol: sympy.Integer(dims[dim]) for symbol, dim in symbols.items()}
        # Substituted, not compiled: torch's own functions (FloorDiv and kin) evaluate themselves.
        values = {size: int(size.xreplace(known)) for size in sizes}
        position = {n.name: i for i, n in enumerate(order)}
        alive: dict[str, int] = {}
        most = 0
        for name, own, scratch in steps:
            alive[name] = int(values[own])
            most = max(most, sum(alive.values()) + int(values[scratch]))
            now = position[name]
            for done in [n for n in alive if last_use.get(n, now) <= now]:
                del alive[done]
        return most

    return estimate


def _symbol_of_dim(program: Any, signature: Signature) -> dict[Any, str]:
    by_name = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    found: dict[Any, str] = {}
    for spec, name in zip(signature.inputs, program.graph_signature.user_inputs, strict=True):
        for want, got in zip(spec.shape, by_name[name].shape, strict=True):
            if isinstance(want, str):
                found[got.node.expr] = want
    return found


def _size(size: Any) -> sympy.Expr:
    return sympy.Integer(size) if isinstance(size, int) else size.node.expr


def _nbytes(value: Any) -> sympy.Expr:
    if isinstance(value, torch.Tensor):
        return sympy.Mul(value.element_size(), *(_size(s) for s in value.shape))
    if isinstance(value, tuple | list):
        return sympy.Add(*(_nbytes(v) for v in value))
    return sympy.Integer(0)


def _scores(node: Any) -> sympy.Expr:
    if "scaled_dot_product_attention" not in str(node.target):
        return sympy.Integer(0)
    query, key = (a.meta["val"] for a in node.args[:2])
    # Scores, their softmax, and the mask spread over them.
    return sympy.Mul(
        3 * query.element_size(), *(_size(s) for s in query.shape[:-1]), _size(key.shape[-2])
    )
