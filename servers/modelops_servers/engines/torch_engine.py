"""PyTorch: a torch.export archive or an AOTInductor package, called without autograd."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch._inductor

from modelops.artifact import Artifact
from modelops.artifact.aoti_package import AOTI_FORMAT, check_machine, check_package
from modelops.config.engine_options import TorchOptions
from modelops.dtypes import numpy_dtype
from modelops.errors import (
    DeadlineError,
    EngineError,
    IntegrityError,
    MissingEnvironmentError,
    ModelopsError,
    NotReadyError,
    UsageError,
)
from modelops.protocols import Health, State, Tensors
from modelops_servers.check import InputCheck
from modelops_servers.engines.warmup import warmup_inputs
from modelops_servers.machine import usable_cores

_MESSAGE_LIMIT = 600
_CUDA_FIX = "install a PyTorch built for CUDA (needs an NVIDIA driver), or --provider cpu"


class TorchEngine:
    """Serves ``torch-export`` and ``aoti``; a ``modelops.protocols.TensorEngine``.

    A ``torch-export`` program runs operator by operator, or compiled where the options say so.
    """

    formats = ("torch-export", AOTI_FORMAT)

    def __init__(
        self,
        artifact: Artifact,
        *,
        provider: str = "auto",
        threads: int | None = None,
        options: TorchOptions | None = None,
    ) -> None:
        if provider not in ("auto", "cpu", "cuda"):
            raise UsageError(
                f"the engine 'torch' has no provider {provider!r}", hint="one of: auto, cpu, cuda"
            )
        self._artifact = artifact
        self._manifest = artifact.manifest
        self._options = options or TorchOptions()
        if self._options.compile and self._manifest.format == AOTI_FORMAT:
            raise UsageError(f"{self._manifest.name!r} is compiled already: leave out compile")
        self._device, self._provider_note = self._choose(provider)
        self._threads = threads or usable_cores()
        self._check = InputCheck(self._manifest.signature)
        self._inputs = [t.name for t in self._manifest.signature.inputs]
        self._outputs = {t.name: numpy_dtype(t.dtype) for t in self._manifest.signature.outputs}
        self._call: Callable[..., Any] | None = None
        self._last_progress: float | None = None
        self._set_state("loading", "not started")

    def start(self) -> None:
        """Load the program, compile it where that was asked for, warm it up.

        Raises:
            MissingEnvironmentError: it is for another machine, or there is no compiler.
            IntegrityError: it is no such program, or its answers are not the manifest's.
            EngineError: PyTorch cannot load or run it.
        """
        self._set_state("loading", "loading the program")
        try:
            torch.set_num_threads(self._threads)
            with contextlib.suppress(RuntimeError):  # may be said once, before any such work
                torch.set_num_interop_threads(1)
            self._call = self._load()
            self._set_state("loading", "warming up")
            for inputs in warmup_inputs(self._artifact):
                self._compare(self.infer(inputs, None))
        except ModelopsError as error:
            self._call = None
            self._set_state("failed", error.message)
            raise
        self._set_state("ready", f"on {self._device}")

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, npt.NDArray[Any]]:
        """Answer one batch; see ``modelops.protocols.TensorEngine``."""
        if self._call is None:
            raise NotReadyError(f"the engine of {self._manifest.name!r} is {self._state}")
        self._check(tensors)
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineError("the deadline passed before the work began")
        try:
            with torch.inference_mode():
                found = self._call(*(self._to_torch(tensors[name]) for name in self._inputs))
                values = [_to_numpy(t) for t in _flat(found)]
        except Exception as error:
            raise self._translated(error) from error
        if len(values) != len(self._outputs):
            raise EngineError(
                f"the program answers {len(values)} tensors, and its manifest names "
                f"{len(self._outputs)}"
            )
        self._last_progress = time.time()
        return dict(zip(self._outputs, values, strict=True))

    def stop(self, deadline: float | None) -> None:  # noqa: ARG002 - nothing here takes long
        """Release the program; see ``modelops.protocols.TensorEngine``."""
        self._call = None
        if self._state != "failed":
            self._set_state("stopped", "stopped")

    def health(self) -> Health:
        """Say how it is; cheap, from any thread."""
        return Health(self._state, self._why, self._since, self._last_progress)

    def describe(self) -> dict[str, Any]:
        """Return the device, threads, precision and PyTorch that are really in use."""
        return {
            "engine": "torch",
            "engine_version": torch.__version__,
            "provider": self._device if self._call is not None else None,
            "provider_note": self._provider_note,
            "threads": self._threads,
            "precision": self._manifest.precision.found,
            "mode": self._mode,
        }

    @property
    def _mode(self) -> str:
        if self._manifest.format == AOTI_FORMAT:
            return "compiled ahead of time"
        return "compiled" if self._options.compile else "eager"

    def _set_state(self, state: State, why: str) -> None:
        self._state: State = state
        self._why = why
        self._since = time.time()

    def _choose(self, provider: str) -> tuple[str, str]:
        """Return the device and why it is that one."""
        compiled_for = self._manifest.requires.get("device")
        if compiled_for is not None:
            if provider not in ("auto", compiled_for):
                raise MissingEnvironmentError(
                    f"{self._manifest.name!r} was compiled for {compiled_for}, not for {provider}",
                    hint="leave --provider out, or export it again on such a machine",
                )
            return compiled_for, "what it was compiled for"
        if provider == "cuda" and not torch.cuda.is_available():
            raise MissingEnvironmentError(
                f"the 'cuda' provider was asked for, but PyTorch {torch.__version__} cannot use "
                "a GPU on this machine",
                hint=_CUDA_FIX,
            )
        if provider != "auto":
            return provider, "as asked"
        # The program is moved to a GPU only where that was asked for: its constants are CPU's.
        return "cpu", "auto: it was traced for the CPU"

    def _load(self) -> Callable[..., Any]:
        path = self._artifact.file(self._manifest.entry)
        if self._manifest.format == AOTI_FORMAT:
            check_machine(self._manifest)
            check_package(path)
            try:
                loaded: Callable[..., Any] = torch._inductor.aoti_load_package(str(path))
            except RuntimeError as error:
                raise EngineError(f"the package cannot be loaded: {_one_line(error)}") from error
            return loaded
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations inside torch.export's deserialiser
            try:
                program = torch.export.load(path)
                if self._device != "cpu":
                    from torch.export.passes import move_to_device_pass

                    program = move_to_device_pass(program, self._device)
                module: Callable[..., Any] = program.module()
            except Exception as error:
                raise EngineError(
                    f"PyTorch {torch.__version__} cannot load {path.name}: {_one_line(error)}"
                ) from error
        return torch.compile(module, dynamic=True) if self._options.compile else module

    def _compare(self, answer: dict[str, npt.NDArray[Any]]) -> None:
        for name, array in answer.items():
            spec = next(t for t in self._manifest.signature.outputs if t.name == name)
            if array.dtype != self._outputs[name] or array.ndim != len(spec.shape):
                raise IntegrityError(
                    f"output {name!r} is {array.dtype}{list(array.shape)}, but its manifest says "
                    f"{spec}",
                    hint="export it again",
                )

    def _to_torch(self, array: npt.NDArray[Any]) -> torch.Tensor:
        if array.dtype == numpy_dtype("bfloat16"):
            tensor = torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
        else:
            # A request's bytes are read only, and not always aligned: PyTorch wants neither.
            tensor = torch.from_numpy(np.array(array, order="C"))
        return tensor if self._device == "cpu" else tensor.to(self._device)

    def _translated(self, error: Exception) -> ModelopsError:
        text = _one_line(error)
        if "InductorError" in type(error).__name__ or "InvalidCxxCompiler" in text:
            return MissingEnvironmentError(
                f"torch.compile does not work here: {text}",
                hint="install g++ 9 or newer, or leave out --compile (modelops doctor tells)",
            )
        if isinstance(error, torch.OutOfMemoryError | MemoryError):
            return EngineError(f"out of memory: {text}")
        return EngineError(f"PyTorch failed: {text}")


def _flat(found: Any) -> Sequence[torch.Tensor]:
    return [found] if isinstance(found, torch.Tensor) else list(found)


def _to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        bits: npt.NDArray[Any] = tensor.view(torch.uint16).numpy()
        return bits.view(numpy_dtype("bfloat16"))
    array: npt.NDArray[Any] = tensor.numpy()
    return array


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:_MESSAGE_LIMIT] or type(error).__name__
