"""Which trainer wrote a training dict, and how far it had come, by the keys that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTERS = (
    "step",
    "global_step",
    "global_steps",
    "epoch",
    "iteration",
    "iter",
    "num_updates",
    "best_metric",
)


def progress_of(root: Mapping[Any, Any]) -> dict[str, int | float]:
    """Return the step, the epoch and the like, where they are numbers."""
    return {
        key: value
        for key in COUNTERS
        if isinstance(value := root.get(key), int | float) and abs(value) < 1 << 63
    }


def trainer_of(root: Mapping[Any, Any]) -> str | None:
    """Name the trainer, with its version where it is there."""
    keys = root.keys()
    if "pytorch-lightning_version" in keys:
        return _named("PyTorch Lightning", root["pytorch-lightning_version"])
    if {"ds_config", "ds_version"} & keys:
        return _named("DeepSpeed", root.get("ds_version"))
    if {"cfg", "model", "optimizer_history"} <= keys:
        return "fairseq"
    if {"train_args", "ema", "updates"} <= keys:
        return "Ultralytics"
    if {"meta", "state_dict"} <= keys:
        return "OpenMMLab"
    if {"args", "checkpoint_version", "iteration"} <= keys:
        return "Megatron-LM"
    return None


def _named(trainer: str, version: Any) -> str:
    return f"{trainer} {version[:40]}" if isinstance(version, str) and version else trainer
