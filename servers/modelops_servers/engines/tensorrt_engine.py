"""TensorRT: one plan on one GPU, by the same code that proved it when it was exported."""

from __future__ import annotations

import time
from typing import Any

import numpy.typing as npt

from modelops.artifact import Artifact
from modelops.errors import DeadlineError, ModelopsError, NotReadyError, UsageError
from modelops.protocols import Health, State, Tensors
from modelops.tensorrt import PlanRuntime
from modelops_servers.check import InputCheck
from modelops_servers.engines.warmup import warmup_inputs

_PROVIDERS = ("auto", "tensorrt")


class TensorRTEngine:
    """Serves artifacts of format ``tensorrt``; a ``modelops.protocols.TensorEngine``."""

    formats = ("tensorrt",)

    def __init__(
        self, artifact: Artifact, *, provider: str = "auto", threads: int | None = None
    ) -> None:
        del threads  # the GPU's own
        if provider not in _PROVIDERS:
            raise UsageError(
                f"a TensorRT plan has no provider {provider!r}", hint="one of: auto, tensorrt"
            )
        self._artifact = artifact
        self._check = InputCheck(artifact.manifest.signature)
        self._runtime: PlanRuntime | None = None
        self._last_progress: float | None = None
        self._set_state("loading", "not started")

    def start(self) -> None:
        """Open the plan and warm it up.

        Raises:
            MissingEnvironmentError: TensorRT or a GPU is missing.
            EngineError: the plan is for another TensorRT or GPU, or fails.
            IntegrityError: the file is no whole plan.
        """
        self._set_state("loading", "opening the plan")
        manifest = self._artifact.manifest
        try:
            self._runtime = PlanRuntime(self._artifact.path / manifest.entry, manifest)
            self._set_state("loading", "warming up")
            for inputs in warmup_inputs(self._artifact):
                self.infer(inputs, None)
        except ModelopsError as error:
            self._release()
            self._set_state("failed", error.message)
            raise
        self._set_state("ready", f"on {self._runtime.gpu.name}")

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, npt.NDArray[Any]]:
        """Answer one batch; see ``modelops.protocols.TensorEngine``."""
        if self._runtime is None:
            raise NotReadyError(f"the engine of {self._artifact.manifest.name!r} is {self._state}")
        self._check(tensors)
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineError("the deadline passed before the work began")
        answer = self._runtime.run(tensors)
        self._last_progress = time.time()
        return answer

    def stop(self, deadline: float | None) -> None:  # noqa: ARG002 - nothing here takes long
        """Give the GPU's memory back; see ``modelops.protocols.TensorEngine``."""
        self._release()
        if self._state != "failed":
            self._set_state("stopped", "stopped")

    def health(self) -> Health:
        """Say how it is; cheap, from any thread."""
        return Health(self._state, self._why, self._since, self._last_progress)

    def describe(self) -> dict[str, Any]:
        """Return the GPU, the version and the precision that are really in use."""
        runtime, manifest = self._runtime, self._artifact.manifest
        return {
            "engine": "tensorrt",
            "engine_version": runtime.version if runtime else None,
            "provider": "tensorrt" if runtime else None,
            "gpu": runtime.gpu.name if runtime else None,
            "precision": manifest.precision.found,
            "built": manifest.built,
        }

    def _release(self) -> None:
        if self._runtime is not None:
            self._runtime.close()
            self._runtime = None

    def _set_state(self, state: State, why: str) -> None:
        self._state: State = state
        self._why = why
        self._since = time.time()
