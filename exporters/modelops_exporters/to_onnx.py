"""ONNX: written by torch.onnx from the one trace, put in order, and run by ONNX Runtime."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy.typing as npt

from modelops.artifact.manifest import Manifest
from modelops.dtypes import BY_ONNX
from modelops.errors import ExportError, VerificationError
from modelops.progress import Progress
from modelops.protocols import ExportedProgram, Tensors, Written
from modelops.signature import TensorSpec

ENTRY = "model.onnx"
DATA = "model.onnx.data"

# 20 is what most runtimes in the field take. From 23 on Attention is an operator of its own,
# which is right on fully masked rows; spelled out at 20 such a row is NaN.
_OPSET = 20
_OPSET_ATTENTION = 23
_INLINE_BYTES = 1024


class OnnxExporter:
    """Writes ``model.onnx`` and, for weights over 1 KiB, ``model.onnx.data``."""

    format = "onnx"
    executable = False
    translated: Any = None
    """The decomposed program that ``write`` translated last, whose node names the graph keeps."""

    def write(
        self,
        exported: ExportedProgram,
        folder: Path,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> Written:
        """Write the model into ``folder``.

        Raises:
            ExportError: an operator has no ONNX equivalent; the user's line is named.
        """
        import onnx_ir as ir
        import torch

        from modelops_exporters.onnx_graph import tidy
        from modelops_exporters.tracing import attention_ranks

        traced = exported.program
        ranks = attention_ranks(traced)
        attention = bool(ranks)
        opset = options.get("opset") or (_OPSET_ATTENTION if attention else _OPSET)
        progress(f"translating to ONNX, opset {opset}")
        with _quiet():
            if ranks - {4}:
                # torch.onnx knows attention with a heads' dim only; spelled out, any rank works.
                traced = traced.run_decompositions()
            try:
                program = torch.onnx.export(
                    traced,
                    dynamo=True,
                    opset_version=opset,
                    optimize=True,
                    verify=False,
                    verbose=False,
                )
            except torch.onnx.OnnxExporterError as error:
                where = _user_line(error, traced)
                raise ExportError(
                    f"torch.onnx cannot express the model: {_reason(error)}"
                    + (f" ({where})" if where else ""),
                    hint="use operators that ONNX has in that line, or export with "
                    "--to torch-export",
                ) from error
        if program is None:
            raise ExportError("torch.onnx returned no program")
        self.translated = program.exported_program
        model = program.model
        tidy(model, exported.signature)
        progress("writing the ONNX file")
        ir.save(model, folder / ENTRY, external_data=DATA, size_threshold_bytes=_INLINE_BYTES)
        if (data := folder / DATA).exists() and not data.stat().st_size:
            data.unlink()
        found = model.graph.opset_imports.get("", opset)
        why = "the model holds attention" if attention and opset == _OPSET_ATTENTION else None
        return Written(
            entry=ENTRY,
            opset=found,
            notes=(f"opset {found}: {why}",) if why else (),
            toolchain={
                name: version(name) for name in ("torch", "onnx", "onnxscript", "onnxruntime")
            },
        )

    def check(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return what the graph is that it was not asked to be: names, dtypes, dims, opset."""
        import onnx

        graph = onnx.load(folder / manifest.entry, load_external_data=False)
        opset = {o.domain: o.version for o in graph.opset_import}.get("")
        signature = manifest.signature
        problems = [
            *_ends("input", signature.inputs, graph.graph.input),
            *_ends("output", signature.outputs, graph.graph.output),
        ]
        if opset != manifest.opset:
            problems.append(f"opset {manifest.opset} was asked, the graph has {opset}")
        return problems

    def load(
        self, folder: Path, manifest: Manifest, *, threads: int | None = None
    ) -> OnnxCpuRuntime:
        """Load it into ONNX Runtime on the CPU."""
        return OnnxCpuRuntime(folder / manifest.entry, threads)


class OnnxCpuRuntime:
    """One ONNX Runtime session on the CPU: the reference that parity is checked on."""

    def __init__(self, path: Path, threads: int | None = None) -> None:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.log_severity_level = 3
        if threads:
            options.intra_op_num_threads = threads
        try:
            self._session = ort.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            raise VerificationError(
                f"ONNX Runtime does not load {path.name}: {error}",
                hint="another --opset may help; the message names the node",
            ) from error
        self._outputs = [o.name for o in self._session.get_outputs()]

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Compute every output.

        Raises:
            VerificationError: the runtime fails on these inputs.
        """
        try:
            results = self._session.run(self._outputs, dict(inputs))
        except Exception as error:
            shapes = ", ".join(f"{n}{list(a.shape)}" for n, a in inputs.items())
            raise VerificationError(f"ONNX Runtime fails on {shapes}: {error}") from error
        return dict(zip(self._outputs, results, strict=True))


def _ends(side: str, specs: tuple[TensorSpec, ...], values: Any) -> list[str]:
    names = [v.name for v in values]
    if names != [s.name for s in specs]:
        return [f"{side}s are {names}, not {[s.name for s in specs]}"]
    problems = []
    for spec, value in zip(specs, values, strict=True):
        tensor = value.type.tensor_type
        dims = [
            d.dim_param or (d.dim_value if d.HasField("dim_value") else "?")
            for d in tensor.shape.dim
        ]
        for want, got in zip(spec.shape, dims, strict=False):
            if isinstance(want, str) and isinstance(got, int):
                problems.append(f"{side} {spec.name!r}: dim {want!r} was asked dynamic, is {got}")
            elif isinstance(want, int) and got != want:
                problems.append(f"{side} {spec.name!r}: a dim of {want} was asked, is {got}")
        if len(dims) != len(spec.shape):
            problems.append(
                f"{side} {spec.name!r}: rank {len(spec.shape)} was asked, is {len(dims)}"
            )
        found = _dtype(tensor.elem_type)
        if found != spec.dtype:
            problems.append(f"{side} {spec.name!r}: {spec.dtype} was asked, is {found}")
    return problems


def _dtype(elem_type: int) -> str:
    import onnx

    name = onnx.TensorProto.DataType.Name(elem_type).lower()
    known = BY_ONNX.get(f"tensor({name})")
    return known.name if known else name


def _user_line(error: BaseException, program: Any) -> str | None:
    """Name the user's line behind the node that could not be translated."""
    from modelops_exporters.user_code import line_in, user_line

    causes, seen = [], error.__cause__
    while seen is not None:
        causes.append(str(seen))
        seen = seen.__cause__
    found = re.search(r"translating node %(\w+)", "\n".join(causes))
    if found is None:
        return user_line(error)
    # Operators are decomposed before they are translated, and keep the trace of their origin.
    for graph in (program.graph, program.run_decompositions().graph):
        for node in graph.nodes:
            if node.name == found[1] and node.meta.get("stack_trace"):
                return line_in(node.meta["stack_trace"])
    return None


def _reason(error: BaseException) -> str:
    causes = []
    seen: BaseException | None = error
    while seen is not None:
        causes.append(str(seen))
        seen = seen.__cause__
    for text in reversed(causes):
        for line in text.splitlines():
            if "No decompositions registered" in line or "No ONNX function" in line:
                return line.strip()
    lines = [line.strip() for line in causes[-1].splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    # torch.onnx warns of its own deprecated calls and of optional packages that nobody asked for.
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
