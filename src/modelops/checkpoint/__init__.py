"""Checkpoints of every trainer, read as data: no code that a file carries is ever run.

``open_checkpoint`` resolves a source, vets it and says what it is; ``load_weights`` puts its
tensors into a model, strictly; ``inspect_checkpoint`` shows what is inside, safe or not.
"""

from modelops.checkpoint.checkpoint import Checkpoint, Format
from modelops.checkpoint.inspection import Inspection, TensorInfo, inspect_checkpoint
from modelops.checkpoint.match import load_weights
from modelops.checkpoint.opening import open_checkpoint

__all__ = [
    "Checkpoint",
    "Format",
    "Inspection",
    "TensorInfo",
    "inspect_checkpoint",
    "load_weights",
    "open_checkpoint",
]
