"""DeepSpeed's folders: the ranks' partitions joined to whole weights, without DeepSpeed."""

from modelops.checkpoint.deepspeed.folder import DeepSpeedFolder, is_deepspeed, open_deepspeed
from modelops.checkpoint.deepspeed.layout import INERT, files_in, refuse_share

__all__ = [
    "INERT",
    "DeepSpeedFolder",
    "files_in",
    "is_deepspeed",
    "open_deepspeed",
    "refuse_share",
]
