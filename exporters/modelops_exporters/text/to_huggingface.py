"""The target of text engines: a Hugging Face folder, compared with its source before it is one."""

from __future__ import annotations

from pathlib import Path

from modelops.artifact import TEXT_FORMAT
from modelops.artifact.manifest import Manifest
from modelops.progress import Progress
from modelops.requests import ExportRequest, ExportResult
from modelops_exporters.text.model import load
from modelops_exporters.text.runtime import TextRuntime


class HuggingFaceExporter:
    """Writes safetensors, config, tokenizer and chat template: data, which any engine reads."""

    format = TEXT_FORMAT
    executable = False

    def export(self, request: ExportRequest, progress: Progress) -> ExportResult:
        """Load safely, write, prove and publish; or publish nothing.

        Raises:
            UsageError: an option was given that belongs to other targets.
            InputError: the source is bad, unsafe, or no language model that is read.
            VerificationError: the written folder is not what its source is.
        """
        from modelops_exporters.text.pipeline import run

        return run(request, progress)

    def load(self, folder: Path, manifest: Manifest, *, threads: int | None = None) -> TextRuntime:  # noqa: ARG002
        """Load the folder into eager PyTorch, in float32."""
        return TextRuntime(load(folder), threads)
