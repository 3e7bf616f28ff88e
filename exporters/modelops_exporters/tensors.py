"""Tensors between numpy, where parity and artifacts live, and torch, where models do."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from modelops.dtypes import dtype
from modelops.errors import ExportError


def to_torch(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return ``array`` as a tensor of its own memory; bfloat16 keeps its bits."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.array(array, order="C"))


def to_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return ``tensor`` as an array of its own memory; bfloat16 keeps its bits."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.uint16).numpy().copy().view(ml_dtypes.bfloat16)
    return tensor.numpy().copy()


def dtype_name(tensor_dtype: torch.dtype) -> str:
    """Return the name that signatures use for a torch dtype.

    Raises:
        ExportError: no signature can hold it (complex, quantised, 8-bit floats).
    """
    name = str(tensor_dtype).removeprefix("torch.")
    try:
        return dtype(name).name
    except Exception as error:
        raise ExportError(
            f"tensors of {tensor_dtype} cannot be inputs or outputs of an artifact",
            hint="return real and imaginary parts, or a plain dtype, from forward",
        ) from error
