"""The seams: what an exporter, a runtime and an engine must be able to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy.typing as npt

from modelops.artifact.manifest import Manifest
from modelops.progress import Progress
from modelops.requests import ExportRequest, ExportResult
from modelops.signature import Signature

Tensors = Mapping[str, npt.NDArray[Any]]
"""Tensors by name; bfloat16 as ml_dtypes.bfloat16, strings as object arrays of bytes."""


@dataclass(frozen=True)
class ExportedProgram:
    """A model traced once by torch.export, which every target starts from.

    ``program`` is a ``torch.export.ExportedProgram`` whose positional inputs are the signature's,
    in order; the core does not import torch, so it is not typed here.
    """

    program: Any
    signature: Signature


@dataclass(frozen=True)
class Written:
    """What an exporter left in the folder it was given."""

    entry: str
    opset: int | None = None
    notes: tuple[str, ...] = ()
    toolchain: dict[str, str] = field(default_factory=dict)
    requires: dict[str, str] = field(default_factory=dict)
    built: dict[str, Any] | None = None


class Runtime(Protocol):
    """One loaded artifact that computes; what parity compares and engines serve."""

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Compute every output, by its name in the signature."""


class Exporter(Protocol):
    """One target. Registered by name in ``modelops.registry`` or by entry point."""

    format: str
    executable: bool
    """True where loading the format runs code: such artifacts need trust."""

    def write(
        self,
        exported: ExportedProgram,
        folder: Path,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> Written:
        """Write the model into ``folder``; raise ExportError where the target cannot hold it."""

    def check(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return what in the written files is not as asked: static dims, dtypes, stray paths."""

    def load(self, folder: Path, manifest: Manifest, *, threads: int | None = None) -> Runtime:
        """Load what ``write`` wrote into its own runtime, on this machine."""


@runtime_checkable
class Demanding(Protocol):
    """What an exporter also is that not every machine can run: it says so before anything else."""

    def require(self, options: Mapping[str, str]) -> None:
        """Refuse options that cannot be meant, and a machine that lacks something."""


@runtime_checkable
class Planning(Protocol):
    """What an exporter also is that can say what it would write, on any machine."""

    def plan(
        self, exported: ExportedProgram, options: Mapping[str, Any], progress: Progress
    ) -> dict[str, Any]:
        """Say what would be written, in the target's own terms."""

    def missing(self) -> list[str]:
        """Say what this machine lacks to write it."""


@runtime_checkable
class TextExporter(Protocol):
    """A target whose artifact is a whole language model and its tokenizer, not one program."""

    format: str
    executable: bool

    def export(self, request: ExportRequest, progress: Progress) -> ExportResult:
        """Load safely, write, prove and publish; or publish nothing. See ``api.export``."""

    def load(self, folder: Path, manifest: Manifest, *, threads: int | None = None) -> Runtime:
        """Load what was written in eager PyTorch, as a runtime from prompt to tokens."""


State = Literal["loading", "ready", "stuck", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class Health:
    """An engine's own account; ``since`` and ``last_progress`` are UNIX seconds."""

    state: State
    why: str
    since: float
    last_progress: float | None = None


Infer = Callable[[Tensors, float | None], dict[str, npt.NDArray[Any]]]
"""What ``TensorEngine.infer`` is."""


class TensorEngine(Protocol):
    """One loaded model that answers tensors. Called from one thread at a time."""

    formats: ClassVar[tuple[str, ...]]
    """The artifact formats that it can serve."""

    def start(self) -> None:
        """Load and warm up; when it returns the engine is ready. Raises on any failure."""

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, npt.NDArray[Any]]:
        """Answer one batch; ``deadline`` is on ``time.monotonic``'s clock.

        Raises:
            RequestError: the tensors do not fit the model.
            DeadlineError: the deadline had passed before the work began.
            EngineError: the runtime failed; the native message is kept.
        """

    def stop(self, deadline: float | None) -> None:
        """Release everything; may be called in any state, more than once."""

    def health(self) -> Health:
        """Say how it is, cheaply, from any thread."""

    def describe(self) -> dict[str, Any]:
        """What is really in use: provider, threads, precision; shown to the operator."""


@runtime_checkable
class SideBySide(Protocol):
    """What a ``TensorEngine`` also is where its ``infer`` may run in several threads at once."""

    @property
    def lanes(self) -> int:
        """How many calls should run side by side where each takes long; 1: none should."""

    def side_by_side(self, lanes: int) -> Infer:
        """Get ready for so many; called once, after ``start``.

        Returns how a call is answered while all lanes are in use, for the warm-up.

        Raises:
            EngineError: the runtime cannot.
        """
