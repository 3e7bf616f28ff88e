"""One trace by torch.export, which every target starts from."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import torch

from modelops.errors import ExportError, UsageError, VerificationError
from modelops.parity.inputs import example_sizes
from modelops.protocols import ExportedProgram
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_exporters.calling import FlatModel
from modelops_exporters.eager import untouched
from modelops_exporters.inputs import PreparedInputs
from modelops_exporters.prepared import Prepared
from modelops_exporters.tensors import dtype_name, to_torch
from modelops_exporters.user_code import user_line

_UNDECIDABLE = ("GuardOnDataDependentSymNode", "data-dependent", "Could not guard on")


@dataclass(frozen=True)
class Traced:
    """The traced program with its whole signature, and the sizes that it was traced at."""

    exported: ExportedProgram
    example: dict[str, int]

    @property
    def signature(self) -> Signature:
        """Inputs and outputs as traced."""
        return self.exported.signature


def trace(prepared: Prepared, *, seed: int) -> Traced:
    """Trace the model once, with every asked dim dynamic.

    Raises:
        VerificationError: a dim asked dynamic came out static, or its range is not the model's.
        ExportError: the model cannot be traced; the user's own line is named.
    """
    inputs = prepared.inputs
    example = example_sizes(prepared.dims)
    known = Signature(inputs=inputs, outputs=(), dims=prepared.dims, padding=prepared.padding)
    arrays = PreparedInputs(prepared, known, seed).random(example)
    tensors = tuple(to_torch(arrays[t.name]) for t in inputs)
    names = _output_names(prepared, tensors)
    dims = {name: torch.export.Dim(name, min=r.min, max=r.max) for name, r in prepared.dims.items()}
    shapes = tuple(
        {axis: dims[d] for axis, d in enumerate(t.shape) if isinstance(d, str)} or None
        for t in inputs
    )
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(_WithoutGraphs(sys.stderr)),
            _silent("torch.export", "torch.fx.experimental.symbolic_shapes"),
        ):
            # torch's own deprecations inside its exporter; nothing that a caller could mend.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            warnings.simplefilter("ignore", UserWarning)
            with torch.no_grad():
                program = torch.export.export(
                    untouched(prepared.model), tensors, dynamic_shapes=(shapes,), strict=False
                )
    except Exception as error:
        raise _explained(error, prepared.dims) from error
    symbols = _symbols(program, inputs)
    outputs = tuple(
        TensorSpec(name=name, dtype=dtype_name(value.dtype), shape=_shape(value, symbols))
        for name, value in zip(names, _output_values(program), strict=True)
    )
    signature = Signature(
        inputs=tuple(_bounded(t, program, i) for i, t in enumerate(inputs)),
        outputs=outputs,
        dims=prepared.dims,
        padding=prepared.padding,
    )
    return Traced(ExportedProgram(program, signature), example)


def attention_ranks(program: Any) -> set[int]:
    """Return the ranks of the queries of every scaled_dot_product_attention in the program."""
    return {
        node.args[0].meta["val"].dim()
        for node in program.graph.nodes
        if "scaled_dot_product_attention" in str(node.target)
    }


@contextlib.contextmanager
def _silent(*names: str) -> Iterator[None]:
    # On failure torch logs whole graphs; the error says what matters. A filter, since torch sets
    # the loggers' levels again when it is first used.
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(_drop)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(_drop)


class _WithoutGraphs(io.TextIOBase):
    """Passes on all but the half-made graph that torch.export prints when it fails."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return len(text) if "def forward(self, " in text else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


def _drop(_record: logging.LogRecord) -> bool:
    return False


def _output_names(prepared: Prepared, tensors: tuple[torch.Tensor, ...]) -> tuple[str, ...]:
    model = untouched(prepared.model)
    if not isinstance(model, FlatModel):
        raise TypeError("a prepared model is a FlatModel")
    with torch.no_grad():  # not inference_mode: what the model keeps must be fit for tracing
        try:
            found = model.named_outputs(tensors)
        except ExportError:
            raise
        except Exception as error:
            where = user_line(error)
            shapes = ", ".join(
                f"{t.name}{list(x.shape)}" for t, x in zip(prepared.inputs, tensors, strict=True)
            )
            raise ExportError(
                f"forward fails in eager PyTorch on {shapes}: {error}"
                + (f" ({where})" if where else ""),
                hint="check the inputs' order, dtypes and sizes; a recipe's inputs(**dims) can "
                "give values that the model takes",
            ) from error
    inputs = {t.name for t in prepared.inputs}
    if not prepared.output_names:
        # A graph cannot give an output the name of an input.
        return tuple(f"{name}_out" if name in inputs else name for name, _ in found)
    if clash := inputs & set(prepared.output_names):
        raise UsageError(f"{min(clash)!r} is an input; an output needs another name")
    if len(prepared.output_names) != len(found):
        raise UsageError(
            f"{len(prepared.output_names)} output names were given, but forward returns "
            f"{len(found)} tensors: {', '.join(name for name, _ in found)}"
        )
    return prepared.output_names


def _user_values(program: Any) -> list[Any]:
    by_name = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    return [by_name[name] for name in program.graph_signature.user_inputs]


def _output_values(program: Any) -> list[Any]:
    returned = next(n for n in program.graph.nodes if n.op == "output").args[0]
    count = len(program.graph_signature.user_outputs)
    return [node.meta["val"] for node in returned[len(returned) - count :]]


def _symbols(program: Any, inputs: tuple[TensorSpec, ...]) -> dict[str, str]:
    symbols: dict[str, str] = {}
    for spec, value in zip(inputs, _user_values(program), strict=True):
        for want, got in zip(spec.shape, value.shape, strict=True):
            if not isinstance(want, str):
                continue
            if isinstance(got, int):
                raise _static(want, f"input {spec.name!r} has it fixed at {got}")
            symbols[str(got.node.expr)] = want
    return symbols


def _shape(value: Any, symbols: dict[str, str]) -> tuple[int | str, ...]:
    def named(size: Any) -> int | str:
        if isinstance(size, int):
            return size
        text = str(size.node.expr).replace(" ", "")
        return re.sub(r"[A-Za-z_]\w*", lambda m: symbols.get(m[0], m[0]), text)

    return tuple(named(size) for size in value.shape)


def _bounded(spec: TensorSpec, program: Any, position: int) -> TensorSpec:
    """Bound an integer input by the smallest embedding table that it indexes."""
    if spec.bounds is not None or not spec.dtype.startswith(("int", "uint")):
        return spec
    name = program.graph_signature.user_inputs[position]
    sources = {name}
    rows: list[int] = []
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        operands = [a.name for a in node.all_input_nodes]
        if node.target == torch.ops.aten.embedding.default and node.args[1].name in sources:
            rows.append(int(node.args[0].meta["val"].shape[0]))
        elif len(operands) == 1 and operands[0] in sources and _only_moves(node.target):
            sources.add(node.name)
    return spec.model_copy(update={"bounds": (0, min(rows) - 1)}) if rows else spec


def _only_moves(target: Any) -> bool:
    packet = str(target).removeprefix("aten.").split(".")[0]
    return packet in {"view", "reshape", "_to_copy", "to", "clone", "alias", "unsqueeze", "squeeze"}


def _static(dim: str, why: str) -> VerificationError:
    return VerificationError(
        f"dim {dim!r} was asked dynamic but came out static: {why}",
        hint=f"compute with tensor.shape and tensor.size() without int() or .item(), or fix the "
        f"size with --dim {dim}=N",
    )


def _explained(error: Exception, dims: dict[str, DimRange]) -> Exception:
    text = str(error)
    where = user_line(error)
    at = f" ({where})" if where else ""
    if isinstance(error, ExportError | VerificationError | UsageError):
        return error
    if any(mark in type(error).__name__ + text for mark in _UNDECIDABLE):
        return ExportError(
            f"forward decides by the values of a tensor, which no graph can hold{at}",
            hint="use torch.where, torch.cond or masking in place of the Python if, loop, int() "
            "or .item()",
        )
    for dim in dims:
        # torch names the dim in the first line of each of its complaints about ranges.
        if re.search(rf"\b{dim}\b", text) and re.search(r"specializ|constant", text):
            return _static(dim, f"the code fixes it to one size{at}")
    if "Suggested fixes" in text or "ConstraintViolation" in text:
        fixes = " ".join(re.findall(r"^\s*(\w+ = .*)$", text, re.MULTILINE))
        return VerificationError(
            "the model does not take every size of the ranges asked: "
            + (fixes or text.strip().splitlines()[0]),
            hint="narrow the range with --dim name=min..max",
        )
    first = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return ExportError(
        f"torch.export cannot trace the model{at}: {first}",
        hint="rewrite that line with tensor operations, or export a part of the model by a recipe",
    )
