"""torch.export's own archive, ``model.pt2``: made canonical, and run by PyTorch."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from modelops.artifact.manifest import Manifest
from modelops.errors import UsageError
from modelops.progress import Progress
from modelops.protocols import ExportedProgram, Written
from modelops.signature import Signature
from modelops_exporters.program_runtime import ProgramRuntime

ENTRY = "model.pt2"

# What a trace says of where it was made: stack traces with absolute paths and module sources.
_ORIGINS = ("stack_trace", "nn_module_stack", "source_fn_stack", "torch_fn", "from_node")


class TorchExportExporter:
    """Writes ``model.pt2``. Loading one runs code: such an artifact needs trust."""

    format = "torch-export"
    executable = True

    def write(
        self,
        exported: ExportedProgram,
        folder: Path,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> Written:
        """Write the program into ``folder``, without origins and example inputs.

        Raises:
            UsageError: an ONNX opset was asked for.
        """
        import torch

        if options.get("opset") is not None:
            raise UsageError("--opset is ONNX's; a torch.export archive has none")

        progress("writing the torch.export archive")
        program = exported.program
        for module in program.graph_module.modules():
            if isinstance(module, torch.fx.GraphModule):
                for node in module.graph.nodes:
                    for key in _ORIGINS:
                        node.meta.pop(key, None)
        program.example_inputs = None
        # By way of memory: on a full disk torch's own writer ends the whole process.
        archive = io.BytesIO()
        with _quiet():
            torch.export.save(program, archive)
        (folder / ENTRY).write_bytes(archive.getbuffer())
        return Written(entry=ENTRY, toolchain={"torch": version("torch")})

    def check(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return which dims asked dynamic are static in the archive."""
        import torch

        with _quiet():
            program = torch.export.load(folder / manifest.entry)
        by_name = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
        problems = []
        for spec, name in zip(
            manifest.signature.inputs, program.graph_signature.user_inputs, strict=True
        ):
            for want, got in zip(spec.shape, by_name[name].shape, strict=True):
                if isinstance(want, str) and isinstance(got, int):
                    problems.append(
                        f"input {spec.name!r}: dim {want!r} was asked dynamic, is {got}"
                    )
        return problems

    def load(
        self, folder: Path, manifest: Manifest, *, threads: int | None = None
    ) -> TorchExportRuntime:
        """Load it into PyTorch; the caller has made sure that it may run."""
        return TorchExportRuntime(folder / manifest.entry, manifest.signature, threads)


class TorchExportRuntime(ProgramRuntime):
    """One loaded torch.export program on the CPU."""

    def __init__(self, path: Path, signature: Signature, threads: int | None = None) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        with _quiet():
            module = torch.export.load(path).module()
        super().__init__(module, signature, "the program")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    # Deprecations inside torch.export's own (de)serialiser.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
