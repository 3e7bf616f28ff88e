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
from modelops.checkpoint.dcp.reading import read_number

__all__ = [
    "DcpFolder",
    "globals_of",
    "is_dcp",
    "is_tensor",
    "nested",
    "open_dcp",
    "read_index",
    "read_number",
]
