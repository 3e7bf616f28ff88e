"""The precision that a model's weights are in."""

from __future__ import annotations

from collections import Counter

import torch

from modelops_exporters.tensors import dtype_name


def precision_of(model: torch.nn.Module) -> str:
    """Return the float dtype that most of the weights are in; float32 where there are none."""
    counted: Counter[str] = Counter()
    for tensor in [*model.parameters(), *model.buffers()]:
        if tensor.is_floating_point():
            counted[dtype_name(tensor.dtype)] += tensor.numel()
    return counted.most_common(1)[0][0] if counted else "float32"
