"""Folders of torch.distributed.checkpoint: tensors in parts, joined without running anything."""

from modelops.checkpoint.dcp.folder import (
    DcpFolder,
    is_dcp,
    is_tensor,
    nested,
    open_dcp,
    read_index,
)
from modelops.checkpoint.dcp.metadata import globals_of
from modelops.checkpoint.dcp.training import Training, look

__all__ = [
    "DcpFolder",
    "Training",
    "globals_of",
    "is_dcp",
    "is_tensor",
    "look",
    "nested",
    "open_dcp",
    "read_index",
]
