"""Batching around any tensor engine: what waits together runs together, and fails alone.

Pure: no threads, no sockets, no clock of its own. Whoever owns the engine puts items as they come
and, whenever the engine is idle, takes a batch, answers it, and takes again. ``take`` never waits,
so an idle engine starts at once and a busy one finds what gathered meanwhile.
"""

from modelops_servers.batching.answer import Outputs, answer
from modelops_servers.batching.batcher import Batcher, Taken
from modelops_servers.batching.independence import rows_are_independent
from modelops_servers.batching.item import Item, ItemMaker
from modelops_servers.batching.layout import row_limit
from modelops_servers.batching.merge import merge, split
from modelops_servers.batching.slack import DEFAULT_SLACK, padding_slack

__all__ = [
    "DEFAULT_SLACK",
    "Batcher",
    "Item",
    "ItemMaker",
    "Outputs",
    "Taken",
    "answer",
    "merge",
    "padding_slack",
    "row_limit",
    "rows_are_independent",
    "split",
]
