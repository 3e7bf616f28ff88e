"""The model before export, behind the interface of a runtime."""

from __future__ import annotations

import copy
from typing import Any

import numpy.typing as npt
import torch

from modelops.errors import ExportError
from modelops.protocols import Tensors
from modelops.signature import TensorSpec
from modelops_exporters.tensors import to_numpy, to_torch


def untouched(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy that shares the weights and nothing else.

    What a model remembers from one call (a size, a cache) must not reach the next comparison.

    Raises:
        ExportError: the model holds something that cannot be copied.
    """
    shared = {id(p): p for p in model.parameters()}
    try:
        return copy.deepcopy(model, shared)
    except (TypeError, RuntimeError, AttributeError) as error:
        raise ExportError(
            f"the model cannot be copied, and so not be compared afresh at each size: {error}",
            hint="keep locks, files, generators and tensors with a history out of the module",
        ) from error


class EagerRuntime:
    """Runs a flat torch module on numpy tensors by the names of its signature.

    With ``afresh``, each run is on an untouched copy of the model as it was given.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: tuple[TensorSpec, ...],
        output_names: tuple[str, ...],
        *,
        afresh: bool = False,
    ) -> None:
        self._model = model
        self._afresh = afresh
        self._inputs = tuple(t.name for t in inputs)
        self._outputs = output_names

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Compute every output.

        Raises:
            ExportError: the model itself fails on these inputs.
        """
        model = untouched(self._model) if self._afresh else self._model
        tensors = [to_torch(inputs[name]) for name in self._inputs]
        # Not inference_mode: a tensor that the model keeps must still be fit for tracing.
        with torch.no_grad():
            try:
                results = model(*tensors)
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                shapes = ", ".join(f"{n}{list(inputs[n].shape)}" for n in self._inputs)
                raise ExportError(
                    f"the model itself fails in eager PyTorch on {shapes}: {error}",
                    hint="narrow the range with --dim, or give inputs that it takes by --recipe",
                ) from error
        return dict(zip(self._outputs, map(to_numpy, results), strict=True))
