"""A loaded PyTorch program, traced or compiled, as a runtime that parity compares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from modelops.errors import VerificationError
from modelops.protocols import Tensors
from modelops.signature import Signature


class ProgramRuntime:
    """Calls ``program`` with the signature's inputs in order; ``what`` names it in errors."""

    def __init__(self, program: Callable[..., Any], signature: Signature, what: str) -> None:
        self._program, self._what = program, what
        self._inputs = tuple(t.name for t in signature.inputs)
        self._outputs = tuple(t.name for t in signature.outputs)

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Compute every output.

        Raises:
            VerificationError: the program refuses these inputs.
        """
        import torch

        from modelops_exporters.tensors import to_numpy, to_torch

        with torch.inference_mode():
            try:
                results = self._program(*(to_torch(inputs[name]) for name in self._inputs))
            except (RuntimeError, AssertionError, IndexError) as error:
                shapes = ", ".join(f"{n}{list(a.shape)}" for n, a in inputs.items())
                raise VerificationError(f"{self._what} fails on {shapes}: {error}") from error
        results = [results] if isinstance(results, torch.Tensor) else results
        return dict(zip(self._outputs, map(to_numpy, results), strict=True))
