"""Megatron-LM's folders: what they are is told, and which part of one can be given."""

from __future__ import annotations

from pathlib import Path

from modelops.errors import CheckpointError

_POINTER = "latest_checkpointed_iteration.txt"
_RANK_FILES = ("model_optim_rng.pt", "model_rng.pt", "distrib_optim.pt")


def refuse_megatron(folder: Path) -> None:
    """Refuse a folder of Megatron-LM's legacy format, or one of several saved steps.

    Raises:
        CheckpointError: it is one; says what to give, or how to save.
    """
    steps = sorted(path for path in folder.glob("iter_*") if path.is_dir())
    readable = [path for path in steps if (path / ".metadata").is_file()]
    if readable:
        raise CheckpointError(
            f"{folder} holds {len(steps)} saved steps of Megatron-LM",
            hint=f"give the folder of one, such as {readable[-1]}",
        )
    ranks = [path for step in (*steps, folder) for path in step.glob("mp_rank_*") if path.is_dir()]
    if (folder / _POINTER).is_file() or ranks or any((folder / n).is_file() for n in _RANK_FILES):
        held = f" ({len(ranks)} ranks)" if ranks else ""
        raise CheckpointError(
            f"{folder} is a legacy checkpoint of Megatron-LM{held}: slices of layers in mp_rank_* "
            "folders, which its own code alone can put together",
            hint="save it with --ckpt-format torch_dist, or convert it with Megatron-LM's "
            "tools/checkpoint/convert.py or Megatron-Bridge to a Hugging Face folder",
        )
