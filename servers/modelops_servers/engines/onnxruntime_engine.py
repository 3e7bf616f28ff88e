"""ONNX Runtime: one session, its provider checked, its native failures translated."""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as native

from modelops.artifact import Artifact, Manifest
from modelops.dtypes import BY_ONNX, numpy_dtype
from modelops.errors import (
    DeadlineError,
    EngineError,
    IntegrityError,
    MissingEnvironmentError,
    ModelopsError,
    NotReadyError,
    RequestError,
    UsageError,
)
from modelops.protocols import Health, Infer, State, Tensors
from modelops.signature import Signature, TensorSpec
from modelops_servers.check import InputCheck
from modelops_servers.engines.warmup import warmup_inputs
from modelops_servers.machine import usable_cores

_PROVIDERS = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
    "tensorrt": (
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ),
}
_FIX = {
    "cuda": "pip uninstall -y onnxruntime && pip install onnxruntime-gpu (needs an NVIDIA driver)",
    "tensorrt": "pip uninstall -y onnxruntime && pip install onnxruntime-gpu tensorrt "
    "(needs an NVIDIA driver)",
}
_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16, without importing onnx to serve
_MESSAGE_LIMIT = 600
_LARGEST_TWICE = 2**30  # bytes of an artifact that may be in memory twice

# What the runtime raises while it runs, and what that means to a caller; the first match counts.
_NATIVE: tuple[tuple[type[BaseException], type[ModelopsError], str], ...] = (
    (native.InvalidArgument, RequestError, "the model cannot take these inputs"),
    (native.EPFail, EngineError, "the execution provider failed"),
    (MemoryError, EngineError, "out of memory"),
    (Exception, EngineError, "onnxruntime failed"),
)


class OnnxRuntimeEngine:
    """Serves artifacts of format ``onnx``; a ``modelops.protocols.TensorEngine``."""

    formats = ("onnx",)

    def __init__(
        self, artifact: Artifact, *, provider: str = "auto", threads: int | None = None
    ) -> None:
        if provider not in ("auto", *_PROVIDERS):
            raise UsageError(
                f"onnxruntime has no provider {provider!r} here",
                hint="one of: auto, " + ", ".join(_PROVIDERS),
            )
        self._artifact = artifact
        self._signature: Signature = artifact.manifest.signature
        self._asked = provider
        self._threads = threads or usable_cores()
        self._check = InputCheck(self._signature)
        self._outputs = [t.name for t in self._signature.outputs]
        self._bound = any(
            t.dtype == "bfloat16" for t in (*self._signature.inputs, *self._signature.outputs)
        )
        self._string_inputs = [t.name for t in self._signature.inputs if t.dtype == "string"]
        self._string_outputs = [
            i for i, t in enumerate(self._signature.outputs) if t.dtype == "string"
        ]
        if self._bound and (self._string_inputs or self._string_outputs):
            raise MissingEnvironmentError(
                f"{artifact.manifest.name!r} mixes strings and bfloat16, which the Python API of "
                f"onnxruntime {ort.__version__} cannot carry together",
                hint="export its bfloat16 inputs and outputs as float32",
            )
        self._session: ort.InferenceSession | None = None
        self._narrow: ort.InferenceSession | None = None
        self._lanes = 1
        self._calls = 0
        self._counting = threading.Lock()
        self._provider_note = ""
        self._set_state("loading", "not started")
        self._last_progress: float | None = None

    def start(self) -> None:
        """Create the session, compare it with the manifest, warm it up.

        Raises:
            MissingEnvironmentError: the asked provider is not there, or an operator has no kernel.
            IntegrityError: the model's inputs and outputs are not the manifest's.
            EngineError: the runtime cannot load or run the model.
        """
        self._set_state("loading", "creating the session")
        try:
            self._session = self._open()
            _compare(self._session, self._artifact.manifest)
            self._set_state("loading", "warming up")
            for inputs in warmup_inputs(self._artifact):
                self.infer(inputs, None)
        except ModelopsError as error:
            self._session = None
            self._set_state("failed", error.message)
            raise
        self._set_state("ready", f"on {self._provider}")

    @property
    def lanes(self) -> int:
        """One for each thread, on CPUs; see ``modelops.protocols.SideBySide``."""
        manifest = self._artifact.manifest
        size = sum(file.size for file in manifest.files.values())
        return self._threads if self._provider == "cpu" and size <= _LARGEST_TWICE else 1

    def side_by_side(self, lanes: int) -> Infer:
        """Open a second session, of a lane's share of the threads; see ``SideBySide``.

        Alone, a call has all threads. With all lanes in use it has its share: threads that work for
        several calls at once cost a sixth of the throughput.
        """
        if self._provider == "cpu" and self._threads > 1:
            self._narrow = self._session_on("cpu", max(1, self._threads // lanes))
        self._lanes = lanes
        return lambda tensors, deadline: self._infer(
            self._narrow or self._session, tensors, deadline
        )

    def infer(self, tensors: Tensors, deadline: float | None) -> dict[str, npt.NDArray[Any]]:
        """Answer one batch; see ``modelops.protocols.TensorEngine``."""
        if self._narrow is None:
            return self._infer(self._session, tensors, deadline)
        with self._counting:
            self._calls += 1
            crowded = self._calls >= self._lanes
        try:
            return self._infer(self._narrow if crowded else self._session, tensors, deadline)
        finally:
            with self._counting:
                self._calls -= 1

    def _infer(
        self, session: ort.InferenceSession | None, tensors: Tensors, deadline: float | None
    ) -> dict[str, npt.NDArray[Any]]:
        if session is None:
            raise NotReadyError(f"the engine of {self._artifact.manifest.name!r} is {self._state}")
        self._check(tensors)
        feed = {**tensors, **{n: _to_text(n, tensors[n]) for n in self._string_inputs}}
        if deadline is not None and time.monotonic() >= deadline:
            raise DeadlineError("the deadline passed before the work began")
        try:
            if self._bound:
                values = _run_bound(session, self._outputs, feed)
            else:
                values = session.run(self._outputs, feed)
        except Exception as error:
            raise _translated(error) from error
        for i in self._string_outputs:
            values[i] = _to_bytes(values[i])
        self._last_progress = time.time()
        return dict(zip(self._outputs, values, strict=True))

    def stop(self, deadline: float | None) -> None:  # noqa: ARG002 - nothing here takes long
        """Release the session; see ``modelops.protocols.TensorEngine``."""
        self._session = self._narrow = None
        if self._state != "failed":
            self._set_state("stopped", "stopped")

    def health(self) -> Health:
        """Say how it is; cheap, from any thread."""
        return Health(self._state, self._why, self._since, self._last_progress)

    def describe(self) -> dict[str, Any]:
        """Return the provider, threads, precision and runtime that are really in use."""
        session = self._session
        return {
            "engine": "onnxruntime",
            "engine_version": ort.__version__,
            "provider": self._provider if session else None,
            "provider_note": self._provider_note,
            "providers": list(session.get_providers()) if session else [],
            "threads": self._threads,
            "precision": self._artifact.manifest.precision.found,
        }

    @property
    def _provider(self) -> str:
        """The short name of the session's first provider: what really computes."""
        first = self._session.get_providers()[0] if self._session else ""
        return next((k for k, v in _PROVIDERS.items() if v[0] == first), first)

    def _set_state(self, state: State, why: str) -> None:
        self._state: State = state
        self._why = why
        self._since = time.time()

    def _open(self) -> ort.InferenceSession:
        if self._asked != "auto":
            session = self._session_on(self._asked, self._threads)
            if session is None:
                raise MissingEnvironmentError(
                    f"the {self._asked!r} provider was asked for, but onnxruntime "
                    f"{ort.__version__} cannot use it on this machine "
                    f"(it has {', '.join(ort.get_available_providers())})",
                    hint=f"{_FIX.get(self._asked, '')}, or --provider cpu".lstrip(", "),
                )
            self._provider_note = "as asked"
            return session
        if _PROVIDERS["cuda"][0] in ort.get_available_providers():
            session = self._session_on("cuda", self._threads)
            if session is not None:
                self._provider_note = "auto: CUDA works here"
                return session
            self._provider_note = "auto: this onnxruntime lists CUDA, but no session gets it"
        else:
            self._provider_note = "auto: this onnxruntime has no CUDA"
        session = self._session_on("cpu", self._threads)
        if session is None:
            raise EngineError("onnxruntime gave a session without its CPU provider")
        return session

    def _session_on(self, provider: str, threads: int) -> ort.InferenceSession | None:
        """Return a session that really has ``provider`` first, or None."""
        wanted = _PROVIDERS[provider]
        if wanted[0] not in ort.get_available_providers():
            return None
        path = self._artifact.file(self._artifact.manifest.entry)
        try:
            session = ort.InferenceSession(
                str(path),
                sess_options=_session_options(threads),
                providers=[
                    (p, self._tensorrt_options()) if p.startswith("Tensorrt") else p for p in wanted
                ],
                enable_fallback=0,
            )
        except (native.NotImplemented, native.EPFail) as error:
            raise MissingEnvironmentError(
                f"onnxruntime {ort.__version__} cannot run {path.name} on {provider}: "
                f"{_first_line(error)}",
                hint="pip install -U onnxruntime, or another --provider",
            ) from error
        except Exception as error:
            raise EngineError(
                f"onnxruntime {ort.__version__} cannot load {path.name}: {_first_line(error)}"
            ) from error
        # The list of available providers lies where a library or a GPU is missing.
        return session if session.get_providers()[0] == wanted[0] else None

    def _tensorrt_options(self) -> dict[str, str]:
        """One optimisation profile over the signature's whole range of sizes."""
        ranges = self._signature.dims
        corners = {
            "min": {n: max(1, d.min) for n, d in ranges.items()},
            "opt": {n: max(1, d.min, min(d.max, 32)) for n, d in ranges.items()},
            "max": {n: d.max for n, d in ranges.items()},
        }
        return {
            f"trt_profile_{corner}_shapes": ",".join(
                f"{t.name}:" + "x".join(str(size) for size in t.sized(dims))
                for t in self._signature.inputs
                if t.dynamic
            )
            for corner, dims in corners.items()
        }


def _session_options(threads: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    # Spinning threads take the cores that the front needs to read the next request.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _compare(session: ort.InferenceSession, manifest: Manifest) -> None:
    """Refuse a model whose inputs or outputs are not those that its manifest promises."""
    for side, specs, nodes in (
        ("input", manifest.signature.inputs, session.get_inputs()),
        ("output", manifest.signature.outputs, session.get_outputs()),
    ):
        found = {n.name: n for n in nodes}
        if found.keys() != {s.name for s in specs}:
            raise IntegrityError(
                f"{manifest.entry} has the {side}s {', '.join(found)}, but its manifest says "
                + ", ".join(s.name for s in specs),
                hint="export it again",
            )
        for spec in specs:
            node = found[spec.name]
            onnx_dtype = BY_ONNX.get(node.type)
            if onnx_dtype is None or onnx_dtype.name != spec.dtype or not _same(spec, node.shape):
                raise IntegrityError(
                    f"{side} {spec.name!r} of {manifest.entry} is {node.type} {node.shape}, "
                    f"but its manifest says {spec}",
                    hint="export it again",
                )


def _same(spec: TensorSpec, shape: list[int | str | None]) -> bool:
    """Equal rank, and where the model fixes a size, the manifest has that size."""
    return len(shape) == len(spec.shape) and all(
        want == got or not isinstance(got, int) for want, got in zip(spec.shape, shape, strict=True)
    )


def _run_bound(
    session: ort.InferenceSession, outputs: list[str], feed: Mapping[str, npt.NDArray[Any]]
) -> list[npt.NDArray[Any]]:
    """Run through bound OrtValues, which carry bfloat16 where numpy has no such type."""
    bfloat16 = numpy_dtype("bfloat16")
    binding = session.io_binding()
    for name, array in feed.items():
        if array.dtype == bfloat16:
            words = np.ascontiguousarray(array).view(np.uint16)
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(words, _BFLOAT16)
            binding.bind_ortvalue_input(name, value)
        else:
            binding.bind_cpu_input(name, array)
    for name in outputs:
        binding.bind_output(name, "cpu")
    session.run_with_iobinding(binding)
    return [
        _from_bfloat16(value) if value.data_type() == "tensor(bfloat16)" else value.numpy()
        for value in binding.get_outputs()
    ]


def _from_bfloat16(value: Any) -> npt.NDArray[Any]:
    shape = tuple(value.shape())
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype=numpy_dtype("bfloat16"))
    words = (ctypes.c_uint16 * count).from_address(value.data_ptr())
    raw: npt.NDArray[Any] = np.frombuffer(words, np.uint16).copy()
    typed: npt.NDArray[Any] = raw.view(numpy_dtype("bfloat16"))
    return typed.reshape(shape)


def _to_text(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The runtime's strings are text; bytes that are no UTF-8 have no place in it."""
    text = np.empty(array.size, dtype=object)
    try:
        text[:] = [bytes(item).decode() for item in array.ravel()]
    except UnicodeDecodeError as error:
        raise RequestError(f"input {name!r} holds bytes that are not UTF-8") from error
    return text.reshape(array.shape)


def _to_bytes(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    raw = np.empty(array.size, dtype=object)
    raw[:] = [str(item).encode() for item in array.ravel()]
    return raw.reshape(array.shape)


def _translated(error: Exception) -> ModelopsError:
    kind, meaning = next((k, m) for caught, k, m in _NATIVE if isinstance(error, caught))
    return kind(f"{meaning}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return text[:_MESSAGE_LIMIT] or type(error).__name__
