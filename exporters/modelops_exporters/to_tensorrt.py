"""TensorRT: a plan built on the GPU that it is for, read back, and run by TensorRT itself."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from modelops.artifact.manifest import Manifest
from modelops.errors import ExportError, MissingEnvironmentError
from modelops.progress import Progress
from modelops.protocols import ExportedProgram, Written
from modelops.tensorrt import (
    PlanRuntime,
    bindings_or_none,
    listen,
    open_plan,
    require_bindings,
    require_gpu,
    requirements,
    what_is_missing,
)
from modelops_exporters.to_onnx import OnnxExporter
from modelops_exporters.trt.building import build
from modelops_exporters.trt.from_torch import build_from_torch, require_torch_tensorrt
from modelops_exporters.trt.options import TensorRTOptions, read_options
from modelops_exporters.trt.parsing import create_network, network_dtypes, parse
from modelops_exporters.trt.profiles import input_shapes
from modelops_exporters.trt.reading import read_back

ENTRY = "model.plan"

# Shares its parser with TensorRT, and parses without a GPU.
_OTHER_PARSER = "tensorrt_rtx"


class TensorRTExporter:
    """Writes ``model.plan``. Loading one runs code: such an artifact needs trust."""

    format = "tensorrt"
    executable = True

    def require(self, options: Mapping[str, str]) -> None:
        """Refuse what cannot be done here before anything is loaded or traced.

        Raises:
            UsageError: an option is unknown or cannot be meant.
            MissingEnvironmentError: TensorRT, CUDA's bindings or a GPU is missing.
        """
        asked = read_options(options)
        if missing := what_is_missing():
            raise MissingEnvironmentError(
                "a TensorRT plan is built on the GPU that it is for: " + "; ".join(missing),
                hint="on a machine with an NVIDIA GPU: pip install tensorrt cuda-python; "
                "here, --plan shows what would be built",
            )
        if asked.via == "torch":
            require_torch_tensorrt()

    def write(
        self,
        exported: ExportedProgram,
        folder: Path,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> Written:
        """Build the plan into ``folder``.

        Raises:
            ExportError: TensorRT refuses the graph, or builds nothing.
            MissingEnvironmentError: TensorRT or a GPU is missing.
        """
        opset, asked = _split(options)
        trt, gpu = require_bindings(), require_gpu()
        shapes = input_shapes(exported.signature, asked.opt)
        built: dict[str, Any] = {"via": asked.via, "options": _said(asked)}
        notes: tuple[str, ...] = ()
        toolchain = {"tensorrt": trt.__version__, "torch": version("torch")}
        if asked.via == "torch":
            plan = build_from_torch(exported, shapes, asked, progress)
            toolchain["torch-tensorrt"] = version("torch-tensorrt")
        else:
            with tempfile.TemporaryDirectory(prefix="modelops-") as private:
                graph = OnnxExporter().write(exported, Path(private), {"opset": opset}, progress)
                found = build(trt, Path(private) / graph.entry, shapes, asked, progress)
            plan, opset = found.plan, graph.opset
            built |= {"graph_layers": found.layers, "graph_dtypes": found.dtypes}
            notes = tuple(f"TensorRT warns: {warning}" for warning in found.warnings)
            toolchain |= {k: v for k, v in graph.toolchain.items() if k != "onnxruntime"}
        (folder / ENTRY).write_bytes(plan)
        progress("reading the plan back")
        engine = open_plan(trt, folder / ENTRY, listen(trt))
        built |= {"engine": read_back(trt, engine), "gpu": gpu.name}
        return Written(
            entry=ENTRY,
            opset=opset,
            notes=notes,
            toolchain=toolchain,
            requires=requirements(
                trt.__version__,
                gpu,
                version_compatible=asked.version_compatible,
                hardware_compatible=asked.hardware_compatibility,
            ),
            built=built,
        )

    def check(self, folder: Path, manifest: Manifest) -> list[str]:  # noqa: ARG002 - a seam's
        """Return what the engine is that it was not asked to be: names, dtypes, ranges."""
        return differences(manifest, (manifest.built or {}).get("engine") or {})

    def load(self, folder: Path, manifest: Manifest, *, threads: int | None = None) -> PlanRuntime:  # noqa: ARG002
        """Load it into TensorRT on this machine's GPU."""
        return PlanRuntime(folder / manifest.entry, manifest)

    def missing(self) -> list[str]:
        """Say what this machine lacks to build a plan."""
        return what_is_missing()

    def plan(
        self, exported: ExportedProgram, options: Mapping[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Say what would be built, and what TensorRT's parser thinks of the graph."""
        opset, asked = _split(options)
        shapes = input_shapes(exported.signature, asked.opt)
        said = {
            "via": asked.via,
            "network": "strongly typed: precision is the graph's, no precision flags",
            "options": _said(asked),
            "profile": {name: shape.model_dump(mode="json") for name, shape in shapes.items()},
        }
        if asked.via == "torch":
            return said | {"parser": "none: torch-tensorrt converts the program itself"}
        return said | _verdict(exported, opset, progress)


def differences(manifest: Manifest, engine: Mapping[str, Any]) -> list[str]:
    """Return where the engine that was read back is not the manifest's signature."""
    signature = manifest.signature
    problems = []
    for side, specs in (("input", signature.inputs), ("output", signature.outputs)):
        found = engine.get(side + "s", {})
        if set(found) != {t.name for t in specs}:
            problems.append(f"{side}s are {sorted(found)}, not {[t.name for t in specs]}")
            continue
        problems += [
            f"{side} {t.name!r}: {t.dtype} was asked, is {found[t.name]['dtype']}"
            for t in specs
            if found[t.name]["dtype"] != t.dtype
        ]
    low = {name: dim.min for name, dim in signature.dims.items()}
    high = {name: dim.max for name, dim in signature.dims.items()}
    for spec in signature.inputs if not problems else ():
        ends = [engine["inputs"][spec.name][end] for end in ("min", "max")]
        asked = [list(spec.sized(low)), list(spec.sized(high))]
        if spec.dynamic and ends != asked:
            problems.append(f"input {spec.name!r}: shapes {asked} were asked, are {ends}")
    return problems


def _verdict(exported: ExportedProgram, opset: int | None, progress: Progress) -> dict[str, Any]:
    trt = bindings_or_none() or bindings_or_none(_OTHER_PARSER)
    if trt is None:
        return {"parser": "none here: pip install tensorrt-rtx-cu13 for one that needs no GPU"}
    name = trt.__name__.replace("_", "-")
    messages = listen(trt)
    network = create_network(trt, trt.Builder(messages.logger))
    with tempfile.TemporaryDirectory(prefix="modelops-") as private:
        graph = OnnxExporter().write(exported, Path(private), {"opset": opset}, progress)
        progress("asking the parser")
        try:
            parse(trt, network, Path(private) / graph.entry, messages)
        except ExportError as error:
            return {"parser": f"{name} {trt.__version__}", "refused": error.message}
    return {
        "parser": f"{name} {trt.__version__}",
        "opset": graph.opset,
        "graph_layers": network.num_layers,
        "graph_dtypes": network_dtypes(network),
    }


def _split(options: Mapping[str, Any]) -> tuple[int | None, TensorRTOptions]:
    return options.get("opset"), read_options({k: v for k, v in options.items() if k != "opset"})


def _said(options: TensorRTOptions) -> dict[str, Any]:
    """Return the options as a manifest keeps them: no path of the exporting machine."""
    said = options.model_dump(mode="json", exclude={"timing_cache", "opt", "via"})
    return said | {"timing_cache": options.timing_cache is not None}
