"""From a plan's bytes to an engine of TensorRT, or to the reason why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from modelops.errors import EngineError, IntegrityError
from modelops.tensorrt.messages import Messages
from modelops.tensorrt.requirements import REBUILD

# How TensorRT names what is wrong with the bytes themselves, of any version.
_NOT_A_PLAN = ("Serialization", "magicTag", "serialization version", "Version tag")


def open_plan(trt: Any, path: Path, messages: Messages) -> Any:
    """Return the engine in ``path``.

    Raises:
        IntegrityError: the file is truncated, no plan, or one of another version.
        EngineError: TensorRT cannot load it here; what its logger said is shown.
    """
    plan = path.read_bytes()
    messages.forget()
    runtime = trt.Runtime(messages.logger)
    # A version-compatible plan carries a lean runtime as host code; artifacts are trusted by then.
    runtime.engine_host_code_allowed = True
    engine = runtime.deserialize_cuda_engine(plan)
    if engine is not None:
        return engine
    why = messages.said()
    if any(mark in why for mark in _NOT_A_PLAN):
        raise IntegrityError(
            f"{path.name} is no whole plan of TensorRT {trt.__version__}: {why}", hint=REBUILD
        )
    raise EngineError(f"TensorRT {trt.__version__} does not load {path.name}: {why}", hint=REBUILD)
