"""The places in a model that a checkpoint fills."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Slot:
    """One parameter or buffer by its name; ``persistent`` is False where none is ever saved."""

    module: nn.Module
    leaf: str
    value: Tensor
    is_parameter: bool
    persistent: bool = True


def slots_of(model: nn.Module) -> dict[str, Slot]:
    """Return every parameter and buffer by each of its names, tied ones under all of them."""
    found: dict[str, Slot] = {}
    for path, module in model.named_modules(remove_duplicate=False):
        prefix = f"{path}." if path else ""
        for leaf, parameter in module._parameters.items():
            if parameter is not None:
                found[prefix + leaf] = Slot(module, leaf, parameter, is_parameter=True)
        for leaf, buffer in module._buffers.items():
            if buffer is not None:
                persistent = leaf not in module._non_persistent_buffers_set
                found[prefix + leaf] = Slot(module, leaf, buffer, False, persistent)
    return found
