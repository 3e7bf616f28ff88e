"""What an ONNX graph computes on real inputs: the largest value of each tensor, and NaN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.errors import MissingEnvironmentError, VerificationError
from modelops.parity.inputs import Arrays


@dataclass
class Range:
    """Of one tensor over all inputs: the largest finite magnitude, and whether all is finite."""

    largest: float = 0.0
    finite: bool = True

    def add(self, values: npt.NDArray[Any]) -> None:
        """Take in what the tensor held for one more input."""
        if not values.size:
            return
        magnitudes = np.abs(values.astype(np.float64))
        known = np.isfinite(magnitudes)
        self.finite &= bool(known.all())
        if known.any():
            self.largest = max(self.largest, float(magnitudes[known].max()))


def ranges(model: Path, names: Sequence[str], inputs: Sequence[Arrays]) -> dict[str, Range]:
    """Run ``model`` on every one of ``inputs`` and return the range of each tensor of ``names``."""
    found = {name: Range() for name in names}
    with _exposed(model, names) as exposed:
        session = session_of(exposed, optimised=False)
        # By name: a graph's own output may be among them, and is returned once.
        for feed in inputs:
            for name, values in zip(names, session.run(list(names), dict(feed)), strict=True):
                found[name].add(values)
    return found


def session_of(model: Path, *, optimised: bool = True) -> Any:
    """Return an ONNX Runtime session on the CPU.

    Raises:
        MissingEnvironmentError: the runtime has no implementation of an operator at its dtype.
        VerificationError: the runtime does not take the model.
    """
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        text = " ".join(str(error).split())
        if "NOT_IMPLEMENTED" in text or "Type Error: Type 'tensor(bfloat16)'" in text:
            raise MissingEnvironmentError(
                "ONNX Runtime's CPU provider cannot run this graph, so it cannot be proven here: "
                + text.rpartition(" : ")[2],
                hint="--precision fp16 runs on every CPU; on a CPU with AMX, modelops tune "
                "--allow-precision bf16 computes an fp32 artifact in bf16",
            ) from error
        raise VerificationError(f"ONNX Runtime does not load {model.name}: {text}") from error


@contextmanager
def _exposed(model: Path, names: Sequence[str]) -> Iterator[Path]:
    import onnx

    proto = onnx.load(model, load_external_data=False)
    have = {o.name for o in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in have)
    # Beside the model, since its weights are found by a name relative to it.
    path = model.with_name(f".{model.name}.exposed")
    try:
        onnx.save(proto, path)
        yield path
    finally:
        path.unlink(missing_ok=True)
